//! `plumbline rack-plan …`

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use reqwest::Method;
use serde::Deserialize as _;
use serde_json::json;

use crate::app::rack_plan::{PlanLineView, export};
use crate::cli::arguments::RackPlanCommand;
use crate::cli::client::Client;
use crate::cli::output::{self, Output};
use crate::cli::{render, text};

/// Largest file that is sent, in bytes: the server's own bound is on the whole request.
const FILE_BYTES_MAX: u64 = 900 << 10;

/// Runs the command.
///
/// # Errors
/// One line; a file that is refused gives one for each mistake.
pub async fn rack_plan(client: &Client, output: Output, command: &RackPlanCommand) -> anyhow::Result<()> {
    match command {
        RackPlanCommand::Export { file } => {
            let answer = client.get(&["rack-plan"]).await?;
            let is_stdout = file.as_os_str() == "-";
            if output.json && is_stdout {
                return output.json(&answer);
            }
            let lines = Vec::<PlanLineView>::deserialize(&answer).context("the server's answer is not understood")?;
            let csv = export(&lines)?;
            if is_stdout {
                return output::print(&text::lines(&csv));
            }
            write_file(file, &csv)?;
            output.say(&format!("{} lines in {}", lines.len(), file.display()))
        }
        RackPlanCommand::Import { file, dry_run } => {
            let csv = read_file(file)?;
            let body = json!({ "csv": csv, "dry_run": dry_run });
            let answer = client
                .send(Method::POST, &["rack-plan"], Some(&body))
                .await
                .with_context(|| format!("{}: nothing was changed", file.display()))?;
            output.show(&answer, render::imported)
        }
    }
}

/// Beside the file first, so that an old one is not lost to a full disk.
fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let writing = || format!("writing {}", path.display());
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(writing)?;
    file.write_all(text.as_bytes()).with_context(writing)?;
    file.persist(path).with_context(writing)?;
    Ok(())
}

pub(super) fn read_file(path: &Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    let reading = || format!("reading {}", path.display());
    let mut bytes = Vec::new();
    let mut source: Box<dyn std::io::Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(path).with_context(reading)?),
    };
    source
        .by_ref()
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(reading)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        anyhow::bail!(
            "{}: more than {FILE_BYTES_MAX} bytes; expected several files",
            path.display()
        );
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow::anyhow!("{}: byte {} is no UTF-8; expected a UTF-8 text", path.display(), at + 1)
    })
}
