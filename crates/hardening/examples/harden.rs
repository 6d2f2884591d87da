//! Brings a profile about in a root folder and says how its rules come out:
//! `cargo run -p hardening --example harden -- PROFILE.yaml ROOT`, as root. With `--look` at the end nothing is written.

use std::path::Path;

use anyhow::{Context, Result};
use hardening::{Tree, apply, demands, evaluate, profile_read};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let profile = profile_read(Path::new(&arguments.next().context("PROFILE.yaml is missing")?))?;
    let root = arguments.next().context("ROOT is missing")?;
    let root = Path::new(&root);
    let today = time::OffsetDateTime::now_utc().date();
    if arguments.next().as_deref() != Some("--look") {
        let applied = apply(&profile, root, &[], today)?;
        for written in &applied.written {
            println!("{} {}", written.action, written.path);
        }
    }
    let arguments: Vec<String> = demands(&profile, &[], today).command_line_tokens.into_iter().collect();
    let tree = Tree::folder(root)?.with_command_line(&arguments.join(" "));
    print!("{}", evaluate(&profile, &tree, &[], today).to_text());
    Ok(())
}
