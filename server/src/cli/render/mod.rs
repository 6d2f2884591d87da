//! Answers as people read them. Pure: everything that changes comes in through [`Context`](super::text::Context).

mod discovery;
mod drift;
mod images;
mod nodes;

pub use discovery::{sightings, windows};
pub use drift::{groups, node_drift, variants};
pub use images::{image, image_check, images};
pub use nodes::{deployment, deployments, event_line, events, node, nodes};
