//! The pages in a browser: they draw their data without errors.
//!
//! Skipped without Chromium, unless the variable `TELEGRAD_CHROMIUM` names the program; `.ci/run` sets it.

mod dashboard;
mod recording;

use std::ffi::OsString;
use std::fs::File;
use std::process::Command;

use super::*;

/// The program, if there is one.
fn browser() -> Option<OsString> {
    let configured = std::env::var_os("TELEGRAD_CHROMIUM");
    configured.or_else(|| {
        let usual = ["chromium", "chromium-browser", "google-chrome"];
        let found = usual
            .into_iter()
            .find(|name| Command::new(name).arg("--version").output().is_ok());
        found.map(OsString::from)
    })
}

/// A child process; killed on drop.
pub(super) struct KillOnDrop(pub(super) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Loads a page, lets it run for seven seconds of virtual time, and returns its document and its console output. `None` without a
/// browser.
#[track_caller]
fn loaded(url: &str) -> Option<(String, String)> {
    let browser = browser()?;
    let folder = tempfile::tempdir().unwrap();
    let [page, log] = ["page", "log"].map(|name| folder.path().join(name));
    let process = Command::new(&browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args(["--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync"])
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .args(["--enable-logging=stderr", "--window-size=1400,900"])
        .args(["--virtual-time-budget=7000", "--dump-dom", url])
        .stdout(File::create(&page).unwrap())
        .stderr(File::create(&log).unwrap())
        .spawn();
    let mut process = KillOnDrop(process.unwrap_or_else(|error| panic!("{browser:?}: {error}")));
    let read = |path| text(&std::fs::read(path).unwrap());
    until(|| {
        let ended = process.0.try_wait().unwrap();
        ended.ok_or_else(|| format!("{url} was not loaded: {}", read(&log)))
    });
    let (page, log) = (read(&page), read(&log));
    assert!(page.contains("</html>"), "no page was loaded: {log}");
    let console = log.lines().filter(|line| line.contains("CONSOLE"));
    Some((page, console.collect::<Vec<_>>().join("\n")))
}

/// The text between the first occurrence of `from` and the next one of `to`.
pub(crate) fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let rest = page.split_once(from).map_or("", |(_, rest)| rest);
    rest.split_once(to).map_or("", |(found, _)| found)
}

/// A number in a data attribute of a page.
#[track_caller]
fn number(page: &str, attribute: &str) -> f64 {
    let value = between(page, &format!("data-{attribute}=\""), "\"");
    value
        .parse()
        .unwrap_or_else(|_| panic!("data-{attribute} is {value:?}"))
}

/// Adds a script that runs a while after the start. Painting is driven by timers, because the virtual time of the browser is ahead of
/// its frames.
fn with_script(page: &str, script: &str) -> String {
    let clock = "<script>window.requestAnimationFrame = (paint) => setTimeout(paint, 16);</script><style>";
    let script = format!("<script>setTimeout(() => {{ {script} }}, 2500);</script></body>");
    page.replacen("<style>", clock, 1).replacen("</body>", &script, 1)
}

/// A script that counts the coloured pixels of a canvas; frames and text are grey.
fn count_colours(canvas: &str, attribute: &str) -> String {
    format!(
        "{{ const canvas = document.querySelector('{canvas}'), pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; \
         let count = 0; \
         for (let at = 0; at < pixels.length; at += 4) {{ \
             const [red, green, blue, alpha] = pixels.slice(at, at + 4); \
             if (alpha > 99 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) count++; \
         }} \
         document.body.dataset.{attribute} = count; }}"
    )
}
