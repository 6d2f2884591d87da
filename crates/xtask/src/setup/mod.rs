//! `cargo xtask setup`: makes a Debian machine able to build, test and demonstrate everything. Safe to repeat, and
//! quiet when there is nothing to do.

mod apt_sources;
mod firmware;
mod grub_pc;
mod loaders;
mod newer_debian;
mod packages;
mod programs;
pub mod web;

use crate::workspace::{Workspace, is_root};
use anyhow::{Context as _, Result};
use std::fs;

/// Does what is missing of: Debian packages, boot loaders, firmware, dashboard.
///
/// # Errors
/// When something is missing and cannot be had; the message says what a person can do.
pub fn set_up(workspace: &Workspace) -> Result<()> {
    if !is_root() {
        eprintln!("note: not root: packages cannot be installed, images not built and virtual racks not started");
    }
    fs::create_dir_all(workspace.work_folder()).context("cannot make .plumbline")?;
    packages::install_missing()?;
    loaders::fetch_missing(&workspace.work_folder(), &workspace.loaders())?;
    firmware::fetch_missing(&workspace.work_folder(), &workspace.firmware())?;
    for (program, path) in [
        (programs::TFTPD_HPA, workspace.tftpd()),
        (programs::NGINX, workspace.nginx()),
        (programs::DHCRELAY, workspace.dhcrelay()),
        (programs::DHCPD, workspace.dhcpd()),
        (programs::REGISTRY, workspace.registry()),
    ] {
        programs::fetch_missing(&program, &workspace.work_folder(), &path)?;
    }
    programs::fetch_missing_folder(&programs::KEA, &workspace.work_folder(), &workspace.kea())?;
    web::build_if_needed(&workspace.root)
}
