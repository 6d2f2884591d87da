//! The commands, each as the list of what it does.

use crate::builds::{build_node_agent, build_server_and_lab};
use crate::cargo::cargo;
use crate::report::Report;
use crate::run::run_announced;
use crate::workspace::{Workspace, program_exists};
use crate::{bench as benchmarks, checks, fuzz as fuzzing, rack, setup as setup_steps, sqlx as query_data};
use anyhow::Result;
use std::process::Command;

/// Time for each fuzz target in the tests, in seconds: enough for what a careless change breaks.
const FUZZ_SECS: u32 = 15;

/// `cargo xtask setup`
///
/// # Errors
/// When a step fails; it has said which.
pub fn setup() -> Result<()> {
    setup_steps::set_up(&Workspace::find()?)
}

/// `cargo xtask demo`
///
/// # Errors
/// As [`setup`].
pub fn demo(arguments: &[&str]) -> Result<()> {
    play("demo", arguments)
}

/// `cargo xtask e2e`
///
/// # Errors
/// As [`setup`].
pub fn e2e(arguments: &[&str]) -> Result<()> {
    play("e2e", arguments)
}

fn play(what: &str, arguments: &[&str]) -> Result<()> {
    let workspace = Workspace::find()?;
    setup_steps::set_up(&workspace)?;
    build_server_and_lab(&workspace)?;
    build_node_agent(&workspace)?;
    let all: Vec<&str> = [what].iter().chain(arguments).copied().collect();
    rack::run_lab(&workspace, &all)
}

/// `cargo xtask test`: what is quick to fail comes first.
///
/// # Errors
/// As [`setup`].
pub fn test(with_e2e: bool) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut report = Report::default();
    report.step("set up", || setup_steps::set_up(&workspace));
    add_static_checks(&mut report, &workspace);
    report.step("tests", || run_tests(&workspace));
    report.step("fuzzing", || fuzzing::run(&workspace, fuzzing::NETBOOT, FUZZ_SECS));
    report.step("documentation tests", || {
        let mut command = cargo(&workspace.root);
        run_announced(
            "run the documentation tests",
            command.args(["test", "--quiet", "--workspace", "--doc"]),
        )
    });
    report.step("dashboard tests", || setup_steps::web::test(&workspace.root));
    if with_e2e {
        report.step("build server, runner", || build_server_and_lab(&workspace));
        report.step("build node agent", || build_node_agent(&workspace));
        for (name, arguments) in [
            ("dashboard in a browser", ["e2e", "--scenario", "dashboard"]),
            ("end to end, UEFI", ["e2e", "--firmware", "uefi"]),
            ("end to end, BIOS", ["e2e", "--firmware", "bios"]),
            ("end to end, Secure Boot", ["e2e", "--firmware", "secureboot"]),
        ] {
            report.step(name, || rack::run_lab(&workspace, &arguments));
        }
    }
    report.finish()
}

/// `cargo xtask bench`
///
/// # Errors
/// As [`setup`].
pub fn bench(arguments: &[&str]) -> Result<()> {
    let workspace = Workspace::find()?;
    setup_steps::set_up(&workspace)?;
    if arguments.first() == Some(&"manifest") {
        build_node_agent(&workspace)?;
    }
    benchmarks::run(&workspace, arguments)
}

/// `cargo xtask bench deploy`
///
/// # Errors
/// As [`setup`].
pub fn bench_deploy(arguments: &[&str]) -> Result<()> {
    play("bench-deploy", arguments)
}

/// `cargo xtask fuzz`
///
/// # Errors
/// As [`setup`], and when an input breaks what always holds.
pub fn fuzz(secs: u32) -> Result<()> {
    let workspace = Workspace::find()?;
    fuzzing::run(&workspace, fuzzing::NETBOOT, secs)?;
    fuzzing::run(&workspace, fuzzing::AGENT, secs)
}

/// `cargo xtask ci`: the checks that run nothing of the product.
///
/// # Errors
/// As [`setup`].
pub fn ci() -> Result<()> {
    let workspace = Workspace::find()?;
    let mut report = Report::default();
    add_static_checks(&mut report, &workspace);
    report.finish()
}

/// `cargo xtask sqlx`
///
/// # Errors
/// As [`setup`].
pub fn sqlx(check_only: bool) -> Result<()> {
    let workspace = Workspace::find()?;
    if check_only {
        query_data::check(&workspace)
    } else {
        query_data::rewrite(&workspace)
    }
}

fn add_static_checks(report: &mut Report, workspace: &Workspace) {
    report.step("formatting", || {
        let mut command = cargo(&workspace.root);
        run_announced("check formatting", command.args(["fmt", "--all", "--", "--check"]))
    });
    report.step("dependency direction", || {
        checks::dependencies::check(&workspace.metadata)
    });
    report.step("file lengths", || checks::lengths::check(&workspace.root));
    report.step("lints", || {
        let mut command = cargo(&workspace.root);
        command.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        run_announced("check lints", &mut command)
    });
    report.step("query data", || query_data::check(workspace));
}

fn run_tests(workspace: &Workspace) -> Result<()> {
    let mut command: Command = cargo(&workspace.root);
    if program_exists("cargo-nextest") {
        command.args([
            "nextest",
            "run",
            "--workspace",
            "--no-tests",
            "pass",
            "--status-level",
            "fail",
        ]);
    } else {
        command.args(["test", "--quiet", "--workspace"]);
    }
    run_announced("run the tests", &mut command)
}
