//! Virtual racks: nodes with real firmware under QEMU, on a wire of their own.
//!
//! The idea: what a datacenter does with metal, this crate does with one network namespace per rack and one QEMU
//! process per node, so that a test sees exactly what firmware, boot loaders and kernels do and nothing is simulated
//! that matters. The appliance runs inside the namespace as it would on its provisioning network.
//!
//! The invariant: a rack leaves nothing behind. Every process, namespace and socket is owned by a value whose `Drop`
//! removes it, and a rack that was killed is cleared away by the next one of the same name.
//!
//! Refused: libvirt or a container runtime (one more daemon to install and to clean up after), and an async runtime
//! (a rack is a handful of processes that are waited for; plain threads read better).

pub mod command;
pub mod derived;
pub mod environment;
pub mod fat;
pub mod forward;
pub mod interrupt;
pub mod netns;
pub mod process;
pub mod qemu;
pub mod scenario;
pub mod simulated;
pub mod ssh;
pub mod wait;
pub mod wire;
