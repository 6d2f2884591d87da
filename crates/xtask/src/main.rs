//! `cargo xtask`: everything a person or CI does with this workspace, as one program.
//!
//! It depends on almost nothing, so that it builds in seconds on a fresh machine, and *spawns* the rest.

mod bench;
mod builds;
mod cargo;
mod checks;
mod commands;
mod fuzz;
mod rack;
mod report;
mod run;
mod setup;
mod sqlx;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask COMMAND

  setup                install what is missing from Debian's packages, fetch the boot loaders, build the dashboard
  demo [--once]        set up, build, and play the demonstration in a virtual rack; the dashboard stays until Ctrl-C
  test [--no-e2e]      set up, then every check and test, the virtual-rack end-to-end run included
  e2e [ARGUMENTS]      set up, build, and play the end-to-end run; the arguments go to `plumbline-lab e2e`
  ci                   formatting, dependency direction, file lengths, lints, query data
  bench tftp [--json]  set up, and measure the TFTP server beside tftpd-hpa and dnsmasq; more arguments go to
                       `plumbline-bench tftp` (see its --help)
  bench http [--json]  the same for the boot listener's HTTP, beside nginx
  bench manifest [--json]  manifests of 100,000 files, and a tree of 400,000 files written by the agent from a server
  bench deploy [--json]    set up, build, and measure writing an image on a virtual node beside `zstd -d | tar -x`; as root
  fuzz [SECONDS]       fuzz what decodes bytes from the network, each target for so many seconds (60)
  sqlx [--check]       rewrite the offline query data in .sqlx, or only check it
  help                 this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["setup"] => commands::setup(),
        ["demo", rest @ ..] if rest.iter().all(|word| *word == "--once") => commands::demo(rest),
        ["test"] => commands::test(true),
        ["test", "--no-e2e"] => commands::test(false),
        ["e2e", rest @ ..] => commands::e2e(rest),
        ["bench", "tftp" | "http" | "manifest", ..] => commands::bench(&words[1..]),
        ["bench", "deploy", rest @ ..] => commands::bench_deploy(rest),
        ["fuzz"] => commands::fuzz(60),
        ["fuzz", secs] if secs.parse::<u32>().is_ok_and(|secs| secs > 0) => commands::fuzz(secs.parse().unwrap_or(60)),
        ["ci"] => commands::ci(),
        ["sqlx"] => commands::sqlx(false),
        ["sqlx", "--check"] => commands::sqlx(true),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
