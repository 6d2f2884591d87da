//! A simulated fleet: many nodes without machines.
//!
//! What is simulated is the machine alone: a folder stands for its disk, an invented inventory for its hardware, and
//! nothing is booted. Everything that speaks is real: the boot script is fetched and its token claimed, the image is
//! installed by the deployer's own code, and each node runs the real agent with a certificate of its own. Names, DMI
//! and serials say that these nodes are simulated.
//!
//! A fleet runs in a process of its own ([`run_fleet`]), inside the rack's network namespace; [`tamper`] changes the
//! folders from outside, as somebody with a shell on the node would.

mod fleet;
mod image;
mod node;
pub mod tamper;

pub use fleet::{FleetOptions, node_folder, node_mac, node_name, run_fleet};
pub use image::{IMAGE, provide as provide_image};
