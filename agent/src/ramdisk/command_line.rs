//! What the kernel command line tells the deployer.

use std::net::Ipv4Addr;

use protocol::limits::TEXT_BYTES_MAX;

/// Servers that one command line may name.
const SERVERS_MAX: usize = 16;

/// What the appliance says of this machine's address, where it is the one that gives the addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseWanted {
    /// Whose leases are taken, by server identifier (`plumbline.dhcp=`); empty: anybody's.
    pub servers: Vec<Ipv4Addr>,
    /// The address and prefix length that it has already (`plumbline.address=`).
    pub address: Option<(Ipv4Addr, u8)>,
    /// The way out of its network (`plumbline.router=`).
    pub router: Option<Ipv4Addr>,
}

/// Words of the kernel command line that are meant for the deployer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The one-shot token (`plumbline.token=`).
    pub token: Option<String>,
    /// MAC of the interface the machine booted from, lower case with colons (`BOOTIF=01-52-54-…`).
    pub boot_mac: Option<String>,
    /// Which lease is its own.
    pub lease: LeaseWanted,
    /// Whether a shell is wanted on the console (`plumbline.shell`).
    pub shell: bool,
}

// The token is a secret of this boot and stays out of logs.
impl std::fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandLine")
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("boot_mac", &self.boot_mac)
            .field("lease", &self.lease)
            .field("shell", &self.shell)
            .finish()
    }
}

impl CommandLine {
    /// Reads the text of `/proc/cmdline`. Of a word given twice the last one counts, as for the kernel.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for word in text.split_ascii_whitespace() {
            if let Some(token) = word.strip_prefix("plumbline.token=") {
                found.token = Some(token.to_owned()).filter(|t| !t.is_empty() && t.len() <= TEXT_BYTES_MAX);
            } else if let Some(address) = word.strip_prefix("BOOTIF=") {
                found.boot_mac = boot_mac(address);
            } else if let Some(servers) = word.strip_prefix("plumbline.dhcp=") {
                // One that cannot be read would lock the machine out, or in: then nobody is preferred.
                let servers: Result<Vec<Ipv4Addr>, _> = servers.split(',').take(SERVERS_MAX).map(str::parse).collect();
                found.lease.servers = servers.unwrap_or_default();
            } else if let Some(address) = word.strip_prefix("plumbline.address=") {
                found.lease.address = address_and_prefix(address);
            } else if let Some(router) = word.strip_prefix("plumbline.router=") {
                found.lease.router = router.parse().ok();
            } else if word == "plumbline.shell" {
                found.shell = true;
            }
        }
        found
    }
}

fn address_and_prefix(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    Some((address.parse().ok()?, prefix))
}

/// A MAC from the form loaders use: hardware type (`01` Ethernet, `20` InfiniBand), then the address, by dashes.
fn boot_mac(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split(['-', ':']).collect();
    let address = match parts.as_slice() {
        ["01" | "20", address @ ..] if address.len() == 6 => address,
        _ => return None,
    };
    let is_byte = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    address
        .iter()
        .all(is_byte)
        .then(|| address.join(":").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_for_the_deployer_are_found_among_others() {
        let line = CommandLine::parse(
            "console=tty0 console=ttyS0,115200 plumbline.token=AbC_-9 BOOTIF=01-52-54-00-AA-00-01 quiet\n",
        );
        assert_eq!(line.token.as_deref(), Some("AbC_-9"));
        assert_eq!(line.boot_mac.as_deref(), Some("52:54:00:aa:00:01"));
        assert!(!line.shell);
        assert!(CommandLine::parse("plumbline.shell").shell);
        assert!(!format!("{line:?}").contains("AbC_-9"), "the token is not for logs");
    }

    #[test]
    fn the_lease_that_is_its_own_is_found() {
        let lease = |text: &str| CommandLine::parse(text).lease;
        let said =
            lease("plumbline.dhcp=10.77.0.1,10.87.0.5 plumbline.address=10.77.0.100/24 plumbline.router=10.77.0.254");
        assert_eq!(
            said,
            LeaseWanted {
                servers: vec![[10, 77, 0, 1].into(), [10, 87, 0, 5].into()],
                address: Some(([10, 77, 0, 100].into(), 24)),
                router: Some([10, 77, 0, 254].into()),
            }
        );
        for nothing in [
            "quiet",
            "plumbline.dhcp=",
            "plumbline.dhcp=10.77.0.1,x",
            "plumbline.address=10.77.0.100",
        ] {
            assert_eq!(lease(nothing), LeaseWanted::default(), "{nothing}");
        }
        assert_eq!(lease("plumbline.address=10.77.0.100/33").address, None);
    }

    #[test]
    fn what_is_no_mac_is_no_interface() {
        for bad in [
            "",
            "01-52-54-00-aa-00",
            "02-52-54-00-aa-00-01",
            "01-52-54-00-aa-00-0g",
            "01-52-54-00-aa-00-001",
            "eth0",
        ] {
            assert_eq!(
                CommandLine::parse(&format!("BOOTIF={bad}")).boot_mac.as_deref(),
                None,
                "{bad}"
            );
        }
        assert_eq!(CommandLine::parse("plumbline.token=").token, None);
    }
}
