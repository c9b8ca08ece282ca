//! `telegrad trace view`: shows a recording in the browser.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use telegrad::profile;
use tokio::signal::unix::{SignalKind, signal};

use super::output::{Output, abandon_on_signals, is_same};
use crate::Error;
use crate::addresses::Addresses;
use crate::page::{Fetches, Page, guarded};

/// The page.
const PAGE: Page = Page {
    title: "Telegrad trace",
    fetches: Fetches::Nothing,
    style: include_str!("view.css"),
    body: include_str!("view.html"),
    script: &[
        include_str!("view/format.js"),
        include_str!("view/data.js"),
        include_str!("view/lanes.js"),
        include_str!("view/density.js"),
        include_str!("view/axis.js"),
        include_str!("view/profile.js"),
        include_str!("view/timeline.js"),
        include_str!("view/lines.js"),
        include_str!("view/painting.js"),
        include_str!("view/navigation.js"),
        include_str!("view/search.js"),
        include_str!("view/details.js"),
        include_str!("view/input.js"),
        include_str!("view/table.js"),
        include_str!("view/traffic.js"),
        include_str!("view/steps.js"),
        include_str!("view/main.js"),
    ],
};

/// Show a recording in the browser.
///
/// Serves one page with the timeline, the table, the traffic between workers and the critical path. The page is self-contained:
/// --output writes it to a file that can be shared.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Recordings of one world: files, or folders that workers have written
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Address to serve the page at; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: Addresses,

    /// Write the page to this file instead, replacing it unless it is one of the recordings
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> Result<ExitCode, Error> {
    let output = args.output.map(|path| Output::new(Some(path)));
    if let Some(output) = &output {
        check_not_input(&output.path, &args.files)?;
        output.check()?;
        abandon_on_signals()?;
    }
    let profile = profile::read(&args.files)?;
    let title = args.files.iter().map(|file| file.display().to_string());
    let title = title.collect::<Vec<_>>().join(", ");
    let page = PAGE.with(&profile.view(&title))?;
    // Frees the memory of a large recording.
    drop(profile);
    if let Some(output) = output {
        output.write(|to| to.write_all(page.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(page, &args.listen))?;
    Ok(ExitCode::SUCCESS)
}

/// Checks that the page does not replace one of its recordings.
fn check_not_input(output: &Path, files: &[PathBuf]) -> Result<(), Error> {
    for file in files {
        let mut within = fs::read_dir(file).into_iter().flatten().flatten();
        if is_same(file, output) || within.any(|entry| is_same(&entry.path(), output)) {
            let output = output.display();
            return Err(format!("cannot write the page to {output}: it is one of the recordings; name another file with --output").into());
        }
    }
    Ok(())
}

async fn serve(page: String, addresses: &Addresses) -> Result<(), Error> {
    let listener = tokio::net::TcpListener::from_std(addresses.listen()?)?;
    let address = listener.local_addr()?;
    // Before the address is printed, so that Ctrl-C ends the command in this way from then on.
    let mut ended = signal(SignalKind::interrupt())?;
    // On standard output, for scripts.
    writeln!(
        std::io::stdout(),
        "http://{address}/ shows the recording; Ctrl-C ends the server"
    )?;
    let app = guarded(PAGE.router(page), address);
    // Ends with the runtime, even during a response.
    tokio::spawn(axum::serve(listener, app).into_future());
    ended.recv().await;
    Ok(())
}
