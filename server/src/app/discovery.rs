//! Arming discovery: for a while, unknown machines of a subnet are answered.

use std::ops::RangeInclusive;

use ipnet::Ipv4Net;
use store::DiscoveryWindow;
use time::OffsetDateTime;

use super::{App, AppError};

/// How long a window may be open.
const MINUTES: RangeInclusive<i64> = 1..=1_440;
/// How many machines it may admit.
const NODES: RangeInclusive<i32> = 1..=10_000;
/// The widest subnet: a wider one is everybody's, and armed by a slip.
const PREFIX_BITS_MIN: u8 = 8;

/// Opens a window.
///
/// # Errors
/// [`AppError::Invalid`], which names the field.
pub async fn discovery_arm(
    app: &App,
    subnet: &str,
    minutes: i64,
    nodes_max: i32,
    armed_by: &str,
) -> Result<DiscoveryWindow, AppError> {
    let subnet = subnet_parse(subnet)?;
    if !MINUTES.contains(&minutes) {
        let (low, high) = (MINUTES.start(), MINUTES.end());
        return Err(AppError::Invalid(format!(
            "minutes: {minutes}, expected {low} to {high}"
        )));
    }
    if !NODES.contains(&nodes_max) {
        let (low, high) = (NODES.start(), NODES.end());
        return Err(AppError::Invalid(format!(
            "nodes_max: {nodes_max}, expected {low} to {high}"
        )));
    }
    let expires_at = OffsetDateTime::now_utc() + time::Duration::minutes(minutes);
    let window = app
        .store
        .discovery_arm(&subnet.to_string(), expires_at, nodes_max, armed_by)
        .await?;
    tracing::info!(window.subnet = %subnet, minutes, nodes_max, user.name = armed_by, "discovery armed");
    Ok(window)
}

/// A subnet in CIDR form, without host bits: they are a slip as often as not.
fn subnet_parse(text: &str) -> Result<Ipv4Net, AppError> {
    let shown: String = text.chars().take(40).collect();
    let invalid = |problem: String| AppError::Invalid(format!("subnet: {shown:?}{problem}"));
    let subnet: Ipv4Net = text
        .parse()
        .map_err(|_| invalid(", expected an IPv4 subnet such as 10.77.0.0/24".to_owned()))?;
    if subnet.trunc() != subnet {
        return Err(invalid(format!(" has host bits set: {} is meant?", subnet.trunc())));
    }
    if subnet.prefix_len() < PREFIX_BITS_MIN {
        return Err(invalid(format!(" is wider than /{PREFIX_BITS_MIN}")));
    }
    Ok(subnet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_exact() {
        assert_eq!(subnet_parse("10.77.0.0/24").unwrap().to_string(), "10.77.0.0/24");
        for (bad, expected) in [
            ("10.77.0.1/24", "10.77.0.0/24 is meant"),
            ("10.77.0.0", "such as"),
            ("0.0.0.0/0", "wider than"),
            ("fd00::/64", "IPv4"),
        ] {
            let error = subnet_parse(bad).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
