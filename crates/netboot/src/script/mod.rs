//! The scripts that boot loaders fetch, as text: iPXE's and GRUB's.
//!
//! Idea: a script is rendered from checked values into a fixed frame. It tells the person at the rack's screen what
//! happens and why, because "it didn't boot" with no reason is what they must never meet.
//!
//! Invariant: no value adds a line, a command or a variable. iPXE splits a line at `&&` and `||`, expands `${…}`,
//! and knows quotes, backslashes and comments, GRUB the like; text for people loses those characters, and what must
//! stay exact (URLs, the kernel command line) is refused when it has them, for both alike.
//!
//! Refused: a template engine. Three scripts of a dozen lines need none, and escaping would then be a habit instead
//! of a property.

mod grub;
mod ipxe;

pub use grub::start as grub_start;

/// The longest reason or name shown, in characters: two lines of a text console.
const TEXT_CHARS_MAX: usize = 160;
/// Longest kernel command line, in bytes: what Linux takes on x86 (COMMAND_LINE_SIZE).
pub const COMMAND_LINE_BYTES_MAX: usize = 2048;
/// Initrds of one script.
pub const INITRDS_MAX: usize = 16;
/// Times the deployer is tried before the script gives up.
const ATTEMPTS: u32 = 5;
/// Seconds after which a machine that is held asks again.
const HOLD_SECS: u32 = 300;
/// Most characters of a FAT volume's label.
const LABEL_CHARS_MAX: usize = 11;

/// Whose script it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    /// iPXE.
    Ipxe,
    /// GRUB 2.
    Grub,
}

/// What starts the deployer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployerBoot {
    /// Base of the boot HTTP service, such as `http://10.77.0.1:8081`.
    pub http_base: String,
    /// Path of the kernel under the base, with its leading slash.
    pub kernel_path: String,
    /// Paths of the initrds under the base, loaded in this order; at least one, at most [`INITRDS_MAX`].
    pub initrd_paths: Vec<String>,
    /// Kernel command line, without `initrd=`, which the script adds.
    pub command_line: String,
    /// What is shown while it loads, for example the node's name and what will be done to it.
    pub title: String,
    /// Where an iPXE asks again, saying its architecture, before it loads a kernel for amd64 on anything else; none once
    /// it has said it. A URL with a query.
    pub script_url: Option<String>,
}

/// A value cannot stand in a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// A URL or path has a character that is none of a plain URL.
    #[error("{what} {value:?} is not a plain URL")]
    Url {
        /// Which value.
        what: &'static str,
        /// The value.
        value: String,
    },
    /// A word of the command line would mean something to iPXE.
    #[error("the kernel command line has the word {word:?}, which the boot script cannot carry")]
    CommandLine {
        /// The word.
        word: String,
    },
    /// The command line is longer than the kernel takes.
    #[error("the kernel command line is longer than {COMMAND_LINE_BYTES_MAX} bytes")]
    CommandLineTooLong,
    /// No initrd, or too many.
    #[error("{count} initrds where 1 to {INITRDS_MAX} are possible")]
    Initrds {
        /// How many there were.
        count: usize,
    },
}

/// Text for people: printable ASCII without what iPXE interprets, in one line of bounded length.
fn plain(text: &str) -> String {
    let safe = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' => character,
        ' ' | '.' | ',' | ':' | ';' | '_' | '-' | '+' | '/' | '=' | '(' | ')' | '@' | '%' | '!' | '?' => character,
        '\'' | '"' | '`' => '.',
        character if character.is_whitespace() => ' ',
        _ => '?',
    };
    let words: Vec<String> = text
        .chars()
        .take(TEXT_CHARS_MAX)
        .map(safe)
        .collect::<String>()
        .split(' ')
        .map(str::to_owned)
        .collect();
    words
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn url(what: &'static str, value: &str) -> Result<String, ScriptError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?=%@,+[]&".contains(&byte);
    if !value.is_empty() && value.bytes().all(is_plain) && value != "&&" {
        Ok(value.to_owned())
    } else {
        Err(ScriptError::Url {
            what,
            value: value.to_owned(),
        })
    }
}

/// The command line with single spaces, or the first word that iPXE would not pass on as it is.
fn command_line(value: &str) -> Result<String, ScriptError> {
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    let is_passed_on = |word: &str| {
        let is_special = |byte: u8| !byte.is_ascii_graphic() || b"\"'\\`".contains(&byte);
        !word.bytes().any(is_special) && !word.contains("${") && word != "&&" && word != "||" && !word.starts_with('#')
    };
    if let Some(word) = words.iter().find(|word| !is_passed_on(word)) {
        return Err(ScriptError::CommandLine {
            word: (*word).to_owned(),
        });
    }
    let line = words.join(" ");
    if line.len() > COMMAND_LINE_BYTES_MAX {
        Err(ScriptError::CommandLineTooLong)
    } else {
        Ok(line)
    }
}

/// A volume's label; characters that it does not have are left out.
fn label(value: &str) -> String {
    value
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(LABEL_CHARS_MAX)
        .collect()
}

/// A deployer's values, checked.
struct Checked {
    base: String,
    kernel: String,
    initrds: Vec<String>,
    command_line: String,
    title: String,
    script_url: Option<String>,
}

fn check(boot: &DeployerBoot) -> Result<Checked, ScriptError> {
    if boot.initrd_paths.is_empty() || boot.initrd_paths.len() > INITRDS_MAX {
        return Err(ScriptError::Initrds {
            count: boot.initrd_paths.len(),
        });
    }
    Ok(Checked {
        base: url("boot HTTP base", boot.http_base.trim_end_matches('/'))?,
        kernel: url("kernel path", &boot.kernel_path)?,
        initrds: boot
            .initrd_paths
            .iter()
            .map(|path| url("initrd path", path))
            .collect::<Result<_, _>>()?,
        command_line: command_line(&boot.command_line)?,
        title: plain(&boot.title),
        script_url: boot
            .script_url
            .as_deref()
            .map(|value| url("script URL", value))
            .transpose()?,
    })
}

/// The default answer: boot the local disk. `node_name` and `reason` are shown, made safe.
///
/// By UEFI the fallback loader of the volume labelled `esp_label` is started from here. Going on to the firmware's next
/// boot device, which is what iPXE does when there is no such volume, would often be the same NIC by another protocol.
pub fn boot_local(language: Language, node_name: &str, reason: &str, esp_label: &str) -> String {
    let said = format!(
        "Plumbline: {}: booting the local disk: {}",
        plain(node_name),
        plain(reason)
    );
    match language {
        Language::Ipxe => ipxe::boot_local(&said, &label(esp_label)),
        Language::Grub => grub::boot_local(&said, &label(esp_label)),
    }
}

/// Tells a person why this machine is not helped, waits for them to read it, and goes on to a disk.
pub fn refuse(language: Language, reason: &str) -> String {
    let said = format!("Plumbline does not boot this machine: {}", plain(reason));
    match language {
        Language::Ipxe => ipxe::refuse(&said),
        Language::Grub => grub::refuse(&said),
    }
}

/// Keeps a machine where it is: it shows why, and asks for its script again every five minutes. `script_url` is where.
///
/// Errors: a URL that is none.
pub fn hold(language: Language, reason: &str, script_url: &str) -> Result<String, ScriptError> {
    let said = format!("Plumbline holds this machine: {}", plain(reason));
    let url = url("script URL", script_url)?;
    Ok(match language {
        Language::Ipxe => ipxe::hold(&said, &url),
        Language::Grub => grub::hold(&said),
    })
}

/// Starts the deployer; on failure says so and tries again a few times, then reboots: the server may be back by then,
/// and decides anew.
///
/// Errors: a value that cannot stand in a script.
pub fn deployer(language: Language, boot: &DeployerBoot) -> Result<String, ScriptError> {
    let checked = check(boot)?;
    Ok(match language {
        Language::Ipxe => ipxe::deployer(&checked),
        Language::Grub => grub::deployer(&checked),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot() -> DeployerBoot {
        DeployerBoot {
            http_base: "http://10.77.0.1:8081".to_owned(),
            kernel_path: "/boot/v1/deployer/vmlinuz".to_owned(),
            initrd_paths: vec!["/boot/v1/deployer/initrd".to_owned()],
            command_line: "console=ttyS0 quiet".to_owned(),
            title: "gpu-001".to_owned(),
            script_url: Some("http://10.77.0.1:8081/boot/v1/script?mac=x".to_owned()),
        }
    }

    /// The lines that do something, without what they print.
    fn commands(script: &str) -> Vec<&str> {
        script
            .lines()
            .map(|line| if line.starts_with("echo ") { "echo" } else { line })
            .collect()
    }

    const LANGUAGES: [Language; 2] = [Language::Ipxe, Language::Grub];

    /// A loader of another architecture would start a kernel that is none there, in silence.
    #[test]
    fn no_kernel_is_loaded_before_the_architecture_is_known() {
        let script = deployer(Language::Ipxe, &boot()).unwrap();
        let (before, after) = script.split_once("kernel ").unwrap();
        assert!(before.contains("iseq ${buildarch} x86_64 ||"), "{script}");
        assert!(after.contains("script?mac=x&buildarch=${buildarch}"), "{script}");
        let said = DeployerBoot {
            script_url: None,
            ..boot()
        };
        let script = deployer(Language::Ipxe, &said).unwrap();
        assert!(!script.contains("buildarch"), "asked again and again: {script}");
    }

    #[test]
    fn no_reason_adds_a_command() {
        LANGUAGES.into_iter().for_each(no_reason_adds_a_command_to);
    }

    fn no_reason_adds_a_command_to(language: Language) {
        let quiet = commands(&refuse(language, "x")).join("\n");
        for hostile in [
            "x\nchain http://evil/",
            "x\r\nreboot",
            "x && reboot",
            "x || reboot",
            "${net0/mac}",
            "\\",
            "' && reboot '",
            "\u{2028}reboot",
            "#!ipxe",
            &"long ".repeat(100),
        ] {
            let script = refuse(language, hostile);
            assert_eq!(commands(&script).join("\n"), quiet, "{hostile:?}");
            let shown = script.lines().find_map(|line| line.strip_prefix("echo ")).unwrap();
            let shown = match language {
                Language::Ipxe => shown,
                Language::Grub => shown.strip_prefix('\'').unwrap().strip_suffix('\'').unwrap(),
            };
            assert!(
                shown.len() < 250 && !shown.contains(['&', '|', '$', '\\', '\'', '"', '#']),
                "{shown}"
            );
            assert_eq!(
                commands(&boot_local(language, hostile, hostile, hostile)).len(),
                commands(&boot_local(language, "x", "x", "x")).len()
            );
        }
        let title = DeployerBoot {
            title: "x && reboot\nreboot".to_owned(),
            ..boot()
        };
        assert_eq!(
            commands(&deployer(language, &title).unwrap()),
            commands(&deployer(language, &boot()).unwrap())
        );
    }

    #[test]
    fn a_command_line_that_a_loader_would_change_is_refused() {
        LANGUAGES.into_iter().for_each(a_changed_command_line_is_refused_for);
        let lines = DeployerBoot {
            command_line: "a=1\n  b=2&&c $d".to_owned(),
            ..boot()
        };
        let script = deployer(Language::Ipxe, &lines).unwrap();
        assert!(
            script.contains("initrd=initrd0 a=1 b=2&&c $d || goto failed\n"),
            "{script}"
        );
        let script = deployer(Language::Grub, &lines).unwrap();
        assert!(script.contains("vmlinuz\" 'a=1' 'b=2&&c' '$d'; then\n"), "{script}");
    }

    fn a_changed_command_line_is_refused_for(language: Language) {
        for line in [
            "a && reboot",
            "a || b",
            "x=${mac}",
            "x=\"a b\"",
            "x='a'",
            "a\\",
            "# comment",
            "x=\u{e9}",
            "a\u{7}",
        ] {
            let boot = DeployerBoot {
                command_line: line.to_owned(),
                ..boot()
            };
            assert!(
                matches!(deployer(language, &boot), Err(ScriptError::CommandLine { .. })),
                "{line:?}"
            );
        }
        let long = DeployerBoot {
            command_line: "a".repeat(COMMAND_LINE_BYTES_MAX + 1),
            ..boot()
        };
        assert_eq!(deployer(language, &long), Err(ScriptError::CommandLineTooLong));
    }

    #[test]
    fn a_path_that_is_no_path_is_refused() {
        LANGUAGES.into_iter().for_each(what_is_no_path_is_refused_for);
    }

    fn what_is_no_path_is_refused_for(language: Language) {
        for path in ["", "/a b", "/a\nreboot", "/${mac}", "/a||b", "/a;b#c"] {
            let kernel = DeployerBoot {
                kernel_path: path.to_owned(),
                ..boot()
            };
            let initrd = DeployerBoot {
                initrd_paths: vec![path.to_owned()],
                ..boot()
            };
            let base = DeployerBoot {
                http_base: path.to_owned(),
                ..boot()
            };
            let script_url = DeployerBoot {
                script_url: Some(path.to_owned()),
                ..boot()
            };
            for boot in [kernel, initrd, base, script_url] {
                assert!(
                    matches!(deployer(language, &boot), Err(ScriptError::Url { .. })),
                    "{path:?}"
                );
            }
        }
        for count in [0, INITRDS_MAX + 1] {
            let boot = DeployerBoot {
                initrd_paths: vec!["/i".to_owned(); count],
                ..boot()
            };
            assert_eq!(deployer(language, &boot), Err(ScriptError::Initrds { count }));
        }
    }
}
