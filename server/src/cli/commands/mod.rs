//! What each command does: ask the server, show the answer.

mod audit;
mod boot;
mod build;
mod builds;
mod channels;
mod deployments;
mod discovery;
mod drift;
mod images;
mod keys;
mod maintenance;
mod nodes;
mod rack_plan;
mod recipe;
mod remediation;
mod rules;
mod session;
mod sign;
mod upkeep;
mod users;

pub use audit::audit;
pub use builds::builds;
pub use channels::channel;
pub use deployments::deployment;
pub use discovery::{dhcp_servers, discovery, sightings};
pub use drift::drift;
pub use images::image;
pub use keys::key;
pub use maintenance::{check_config, migrate};
pub use nodes::node;
pub use rack_plan::rack_plan;
pub use remediation::{remediate, remediation};
pub use rules::rules;
pub use session::{login, logout};
pub use users::user;
