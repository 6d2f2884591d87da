//! Answers as people read them. Pure: everything that changes comes in through [`Context`](super::text::Context).

mod boot;
mod builds;
mod burn_ins;
mod channels;
mod discovery;
mod drift;
mod image_diff;
mod images;
mod keys;
mod nodes;
mod rack_plan;
mod remediation;
mod rules;

pub use boot::boot;
pub use builds::{build, builds, recipes};
pub use burn_ins::burn_ins;
pub use channels::{channel, channel_moves, channels, group_images};
pub use discovery::{dhcp_servers, sightings, windows};
pub use drift::{diff, finding_events, groups, node_drift, reviews, variants};
pub use image_diff::{DIFF_PATHS, image_diff};
pub use images::{collection, image, image_check, images};
pub use keys::{image_revoked, key, key_revoked, key_rotated, keys};
pub use nodes::{deployment, deployment_in_full, deployments, event_line, events, node, nodes, why};
pub use rack_plan::imported;
pub use remediation::{audit, left, plan, releases, run, runs};
pub use rules::rules;
