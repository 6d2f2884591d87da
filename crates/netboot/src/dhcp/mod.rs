//! DHCP for booting machines: as a proxy beside the site's own server, or as the server itself.
//!
//! Reading order: [`packet`] and [`reply`] are the wire, [`boot`] says which loader a machine wants, [`policy`] decides
//! what to answer and where to, [`socket`] moves the datagrams.
//!
//! Refused: answering in every case. A machine that nobody listed hears nothing, because a production server on the
//! same wire that happens to boot from the network must be left alone.

pub mod boot;
pub mod error;
pub mod identity;
pub mod options;
pub mod others;
pub mod packet;
pub mod policy;
mod relay;
pub mod reply;
pub mod socket;
mod text;

pub use boot::{BootAnswer, LoaderSet, LoaderTable};
pub use error::PacketError;
pub use identity::HardwareIdentity;
pub use options::OptionList;
pub use packet::{Header, MessageType, Request};
pub use policy::{
    Context, Decision, Destination, IgnoreReason, LeaseEvent, LeaseOffer, Mode, NodeStanding, Port, ReplyPlan, answer,
};
pub use relay::RelayAgentInfo;
pub use reply::Reply;
pub use socket::{BackendError, DhcpBackend, DhcpConfig, DhcpPorts, DhcpServer, Exchange, Stance, Standing};
