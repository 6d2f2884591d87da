//! Counters and gauges for Prometheus.

use std::sync::Arc;

use netboot::CounterSet;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::http::boot::admission::Gauges;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Kind {
    kind: String,
}

/// The counters of a boot protocol on an interface.
#[derive(Debug)]
struct Protocol {
    name: &'static str,
    interface: String,
    counters: Arc<CounterSet>,
}

/// All metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    boot_requests: Family<Kind, Counter>,
    bodies: Gauges,
    netboot: std::sync::Mutex<Vec<Protocol>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("plumbline");
        let boot_requests = Family::<Kind, Counter>::default();
        registry.register(
            "boot_http_requests",
            "Requests on the boot listener by kind",
            boot_requests.clone(),
        );
        let bodies = Gauges::default();
        for (name, help, gauge) in [
            (
                "boot_http_bodies",
                "Large bodies that the boot listener sends",
                &bodies.in_use,
            ),
            (
                "boot_http_bodies_max",
                "Large bodies that it sends at most",
                &bodies.places,
            ),
            (
                "boot_http_bodies_waiting",
                "Requests that wait to be sent one",
                &bodies.waiting,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        Self {
            registry,
            boot_requests,
            bodies,
            netboot: std::sync::Mutex::default(),
        }
    }
}

impl Metrics {
    /// Counts a request on the boot listener.
    pub fn boot_request(&self, kind: &str) {
        self.boot_requests.get_or_create(&Kind { kind: kind.to_owned() }).inc();
    }

    /// Numbers of the boot listener's large bodies.
    #[must_use]
    pub const fn bodies(&self) -> &Gauges {
        &self.bodies
    }

    /// Adds the counters of a boot protocol (`dhcp`, `tftp`) on an interface.
    pub fn add_protocol(&self, name: &'static str, interface: &str, counters: Arc<CounterSet>) {
        if let Ok(mut netboot) = self.netboot.lock() {
            netboot.push(Protocol {
                name,
                interface: interface.to_owned(),
                counters,
            });
            // All numbers of one name stand together, whatever order the interfaces came in.
            netboot.sort_by_key(|protocol| protocol.name);
        }
    }

    /// The metrics in OpenMetrics text form.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            tracing::error!(%error, "encoding metrics failed");
        }
        let mut text = text.trim_end().trim_end_matches("# EOF").to_owned();
        if let Ok(netboot) = self.netboot.lock() {
            let mut told = "";
            for protocol in netboot.iter() {
                let Protocol { name, interface, .. } = protocol;
                if told != *name {
                    told = name;
                    text.push_str(&format!(
                        "# HELP plumbline_{name} Packets and outcomes by interface and kind.\n"
                    ));
                    text.push_str(&format!("# TYPE plumbline_{name} counter\n"));
                }
                for (kind, count) in protocol.counters.snapshot() {
                    let labels = format!("interface=\"{interface}\",kind=\"{kind}\"");
                    text.push_str(&format!("plumbline_{name}_total{{{labels}}} {count}\n"));
                }
            }
        }
        text.push_str("# EOF\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_show() {
        let metrics = Metrics::default();
        metrics.boot_request("pack");
        metrics.boot_request("pack");
        let counters = Arc::new(CounterSet::new(&["too_short"]));
        counters.increment("too_short");
        metrics.add_protocol("dhcp", "eno1", counters.clone());
        metrics.add_protocol("tftp", "eno1", counters.clone());
        metrics.add_protocol("dhcp", "eno2.40", counters);
        metrics.bodies().waiting.set(31);
        let text = metrics.render();
        assert!(text.contains("plumbline_boot_http_bodies_waiting 31\n"), "{text}");
        assert!(
            text.contains("plumbline_boot_http_requests_total{kind=\"pack\"} 2\n"),
            "{text}"
        );
        for interface in ["eno1", "eno2.40"] {
            let line = format!("plumbline_dhcp_total{{interface=\"{interface}\",kind=\"too_short\"}} 1\n");
            assert!(text.contains(&line), "{text}");
        }
        let of_dhcp = text.find("# TYPE plumbline_dhcp ")..text.find("# HELP plumbline_tftp ");
        let last_of_dhcp = text.rfind("plumbline_dhcp_total");
        assert!(
            of_dhcp.contains(&last_of_dhcp),
            "numbers of one name stand together: {text}"
        );
        assert_eq!(text.matches("# TYPE plumbline_dhcp ").count(), 1, "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
