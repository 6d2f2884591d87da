//! Arming discovery: for a while, unknown machines of a subnet or on a relay's circuit are answered.

use std::ops::RangeInclusive;

use ipnet::Ipv4Net;
use store::{DiscoveryWindow, WindowPlace};
use time::OffsetDateTime;

use super::{App, AppError};

/// How long a window may be open.
const MINUTES: RangeInclusive<i64> = 1..=1_440;
/// How many machines it may admit.
const NODES: RangeInclusive<i32> = 1..=10_000;
/// The widest subnet: a wider one is everybody's, and armed by a slip.
const PREFIX_BITS_MIN: u8 = 8;
/// The shortest circuit, or beginning of one.
const CIRCUIT_CHARS_MIN: usize = 2;

/// Opens a window.
///
/// # Errors
/// [`AppError::Invalid`], which names the field.
pub async fn discovery_arm(
    app: &App,
    subnet: Option<&str>,
    circuit: Option<&str>,
    minutes: i64,
    nodes_max: i32,
    armed_by: &str,
) -> Result<DiscoveryWindow, AppError> {
    let place = match (subnet, circuit) {
        (Some(subnet), None) => WindowPlace::Subnet(subnet_parse(subnet)?.to_string()),
        (None, Some(circuit)) => WindowPlace::RelayCircuit(circuit_parse(circuit)?),
        _ => {
            let expected = "subnet, relay_circuit: expected one of the two";
            return Err(AppError::Invalid(expected.to_owned()));
        }
    };
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
    let window = app.store.discovery_arm(&place, expires_at, nodes_max, armed_by).await?;
    let place = circuit.or(subnet).unwrap_or_default();
    let detail = format!("at most {nodes_max} machines, {minutes} minutes");
    app.store.audit_add(armed_by, "discovery_armed", place, &detail).await?;
    tracing::info!(
        window.place = place,
        minutes,
        nodes_max,
        user.name = armed_by,
        "discovery armed"
    );
    Ok(window)
}

/// A circuit as relays write it; a `*` alone would be everybody's.
fn circuit_parse(text: &str) -> Result<String, AppError> {
    let text = text.trim();
    let beginning = text.strip_suffix('*').unwrap_or(text);
    let is_visible = text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    if beginning.len() < CIRCUIT_CHARS_MIN || text.len() > 255 || !is_visible || beginning.contains('*') {
        let shown: String = text.chars().take(60).collect();
        return Err(AppError::Invalid(format!(
            "relay_circuit: {shown:?}, expected a circuit as the relay writes it (`plumbline sightings` lists them), or \
             at least {CIRCUIT_CHARS_MIN} characters of its beginning and a '*'"
        )));
    }
    Ok(text.to_owned())
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
    fn a_circuit_is_one_or_the_beginning_of_some() {
        for good in ["leaf1:Ethernet1/7", "leaf1:*", "00:04:00:0a:01:07"] {
            assert_eq!(circuit_parse(good).unwrap(), good);
        }
        for bad in ["", "*", "l*", "leaf*1*", "le\u{7}f"] {
            let error = circuit_parse(bad).unwrap_err().to_string();
            assert!(error.contains("relay_circuit") && error.contains("expected"), "{error}");
        }
    }

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
