//! Links against what is planned for a node group.

use protocol::latest::{LinkLayer, Port};

/// Links that every machine of some groups must have: so many ports of a kind, at a speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// Node groups; empty: all.
    pub groups: Vec<String>,
    /// What the ports speak; none: either.
    pub layer: Option<LinkLayer>,
    /// Driver of the ports; none: any.
    pub driver: Option<String>,
    /// How many of them must have a link.
    pub count: usize,
    /// The speed that each must have, in Mb/s; more is no fault.
    pub speed_mbps: Option<u32>,
}

impl LinkPlan {
    fn is_about(&self, port: &Port) -> bool {
        self.layer.is_none_or(|layer| port.layer == layer)
            && (self.driver.is_none() || port.driver.as_deref() == self.driver.as_deref())
    }

    fn name(&self) -> String {
        let mut words: Vec<&str> = Vec::new();
        words.extend(self.driver.as_deref());
        words.extend(self.layer.map(LinkLayer::as_str));
        words.push("ports");
        words.join(" ")
    }
}

/// What does not fit. Ports that no plan is about may be without a cable; none may lose its link while it is looked at.
pub(super) fn problems(ports: &[Port], group: &str, plans: &[LinkPlan]) -> Vec<String> {
    let mut problems: Vec<String> = ports
        .iter()
        .filter(|port| port.losses > 0)
        .map(|port| format!("{} lost its link {} times", port.name, port.losses))
        .collect();
    let of_group = |plan: &&LinkPlan| plan.groups.is_empty() || plan.groups.iter().any(|name| name == group);
    for plan in plans.iter().filter(of_group) {
        let about: Vec<&Port> = ports.iter().filter(|port| plan.is_about(port)).collect();
        let linked = about.iter().filter(|port| port.link).count();
        if linked < plan.count {
            let without: Vec<&str> = about
                .iter()
                .filter(|port| !port.link)
                .map(|port| port.name.as_str())
                .collect();
            let hint = match without.is_empty() {
                true => format!("there are {} in all", about.len()),
                false => format!("without: {}", without.join(", ")),
            };
            problems.push(format!(
                "{linked} of {} {} have a link ({hint})",
                plan.count,
                plan.name()
            ));
        }
        let Some(expected) = plan.speed_mbps else { continue };
        for port in about.iter().filter(|port| port.link) {
            match port.speed_mbps {
                Some(speed) if speed >= expected => {}
                Some(speed) => problems.push(format!("{} runs at {speed} Mb/s; expected {expected}", port.name)),
                None => problems.push(format!(
                    "{} does not tell its speed; expected {expected} Mb/s",
                    port.name
                )),
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, layer: LinkLayer, speed: Option<u32>) -> Port {
        Port {
            name: name.to_owned(),
            address: String::new(),
            layer,
            driver: Some("mlx5_core".to_owned()),
            pci_address: None,
            link: speed.is_some(),
            state: None,
            speed_mbps: speed.filter(|speed| *speed > 0),
            losses: 0,
        }
    }

    fn plan(count: usize, speed_mbps: Option<u32>) -> LinkPlan {
        LinkPlan {
            groups: vec!["gpu".to_owned()],
            layer: Some(LinkLayer::Infiniband),
            driver: None,
            count,
            speed_mbps,
        }
    }

    #[test]
    fn a_missing_cable_and_a_slow_port_are_named() {
        let ports = [
            port("mlx5_0/1", LinkLayer::Infiniband, Some(400_000)),
            port("mlx5_1/1", LinkLayer::Infiniband, Some(200_000)),
            port("mlx5_2/1", LinkLayer::Infiniband, None),
            port("eth0", LinkLayer::Ethernet, None),
        ];
        assert_eq!(
            problems(&ports, "gpu", &[plan(3, Some(400_000))]),
            [
                "2 of 3 InfiniBand ports have a link (without: mlx5_2/1)",
                "mlx5_1/1 runs at 200000 Mb/s; expected 400000"
            ]
        );
        assert_eq!(
            problems(&ports, "cpu", &[plan(3, Some(400_000))]),
            [""; 0],
            "another group"
        );
        assert_eq!(
            problems(&ports, "gpu", &[]),
            [""; 0],
            "without a plan a port may be free"
        );
        let card_missing = problems(&ports[..1], "gpu", &[plan(8, None)]);
        assert_eq!(
            card_missing,
            ["1 of 8 InfiniBand ports have a link (there are 1 in all)"]
        );
    }

    #[test]
    fn a_link_that_does_not_stay_is_a_fault_without_any_plan() {
        let mut flapping = port("eth0", LinkLayer::Ethernet, Some(25_000));
        flapping.losses = 3;
        assert_eq!(problems(&[flapping], "gpu", &[]), ["eth0 lost its link 3 times"]);
        let silent = port("mlx5_0/1", LinkLayer::Infiniband, Some(0));
        assert_eq!(
            problems(&[silent], "gpu", &[plan(1, Some(400_000))]),
            ["mlx5_0/1 does not tell its speed; expected 400000 Mb/s"]
        );
    }
}
