//! Makes cargo notice a dashboard that was built after the server: without the folder there is nothing to watch, and a
//! server built before `npm run build` would never embed it.

use std::path::Path;

fn main() {
    let dist = Path::new("../web/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    if let Err(error) = std::fs::create_dir_all(dist) {
        println!(
            "cargo::warning={}: {error}; the dashboard is not embedded",
            dist.display()
        );
    }
}
