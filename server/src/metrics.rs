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

/// All metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    boot_requests: Family<Kind, Counter>,
    bodies: Gauges,
    netboot: std::sync::Mutex<Vec<(&'static str, Arc<CounterSet>)>>,
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

    /// Adds the counters of a boot protocol (`dhcp`, `tftp`).
    pub fn add_protocol(&self, name: &'static str, counters: Arc<CounterSet>) {
        if let Ok(mut netboot) = self.netboot.lock() {
            netboot.push((name, counters));
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
            for (name, counters) in netboot.iter() {
                text.push_str(&format!("# HELP plumbline_{name} Packets and outcomes by kind.\n"));
                text.push_str(&format!("# TYPE plumbline_{name} counter\n"));
                for (kind, count) in counters.snapshot() {
                    text.push_str(&format!("plumbline_{name}_total{{kind=\"{kind}\"}} {count}\n"));
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
        metrics.add_protocol("dhcp", counters);
        metrics.bodies().waiting.set(31);
        let text = metrics.render();
        assert!(text.contains("plumbline_boot_http_bodies_waiting 31\n"), "{text}");
        assert!(
            text.contains("plumbline_boot_http_requests_total{kind=\"pack\"} 2\n"),
            "{text}"
        );
        assert!(text.contains("plumbline_dhcp_total{kind=\"too_short\"} 1\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
