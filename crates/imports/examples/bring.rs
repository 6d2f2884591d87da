//! Brings a root from a folder, a tarball or an image on this machine, and says whether it could boot:
//! `cargo run -p imports --example bring -- SOURCE TARGET`, as root.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result};
use imports::{Import, Limits, Source, bootable, rpm};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let source = arguments.next().context("SOURCE is missing")?;
    let target = arguments.next().context("TARGET is missing")?;
    let limits = Limits::default();
    let import = Import::open(Source::detect(Path::new(&source), &limits)?, &limits)?;
    let begun = std::time::Instant::now();
    let imported = import.unpack_into(Path::new(&target), &mut |progress| {
        eprint!(
            "\r{:?}: {} entries, {} MiB ",
            progress.stage,
            progress.entries,
            progress.bytes_done >> 20
        );
        ControlFlow::Continue(())
    })?;
    eprintln!("in {:.1} s", begun.elapsed().as_secs_f64());
    println!("{}", serde_json::to_string_pretty(&imported)?);
    match bootable(Path::new(&target)) {
        Ok(bootable) => println!("{}", serde_json::to_string_pretty(&bootable)?),
        Err(missing) => {
            for missing in missing {
                println!("{}\n    {}", missing.problem, missing.remedy);
            }
        }
    }
    match rpm::packages(Path::new(&target)) {
        Ok(packages) => println!("{} rpm packages", packages.len()),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
