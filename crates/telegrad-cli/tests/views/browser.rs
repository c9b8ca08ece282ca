//! The pages in a browser: that they draw what they are given, without an error.
//!
//! Chromium is needed; where there is none, these tests have nothing to say. `.ci/run` installs it. The variable
//! `TELEGRAD_CHROMIUM` says which program it is, and that there must be one.

mod dashboard;
mod recording;

use std::ffi::OsString;
use std::fs::File;
use std::process::Command;

use super::*;

/// The program, if there is one.
fn browser() -> Option<OsString> {
    let told = std::env::var_os("TELEGRAD_CHROMIUM");
    told.or_else(|| {
        let usual = ["chromium", "chromium-browser", "google-chrome"];
        let found = usual
            .into_iter()
            .find(|name| Command::new(name).arg("--version").output().is_ok());
        found.map(OsString::from)
    })
}

/// A process that does not go on after the test.
pub(super) struct Ended(pub(super) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Loads a page, lets it run for seven seconds of its own clock, and gives what it has become and what it has said to its
/// console. Nothing without a browser.
#[track_caller]
fn loaded(url: &str) -> Option<(String, String)> {
    let browser = browser()?;
    let folder = tempfile::tempdir().unwrap();
    let [page, said] = ["page", "said"].map(|name| folder.path().join(name));
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
        .stderr(File::create(&said).unwrap())
        .spawn();
    let mut process = Ended(process.unwrap_or_else(|error| panic!("{browser:?}: {error}")));
    let read = |path| text(&std::fs::read(path).unwrap());
    until(|| {
        let ended = process.0.try_wait().unwrap();
        ended.ok_or_else(|| format!("{url} is not shown: {}", read(&said)))
    });
    let (page, said) = (read(&page), read(&said));
    assert!(page.contains("</html>"), "there is no page: {said}");
    let console = said.lines().filter(|line| line.contains("CONSOLE"));
    Some((page, console.collect::<Vec<_>>().join("\n")))
}

/// What is between the first of one text and the next of another.
pub(crate) fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let rest = page.split_once(from).map_or("", |(_, rest)| rest);
    rest.split_once(to).map_or("", |(found, _)| found)
}

/// A number that a page has as an attribute.
#[track_caller]
fn number(page: &str, attribute: &str) -> f64 {
    let value = between(page, &format!("data-{attribute}=\""), "\"");
    value
        .parse()
        .unwrap_or_else(|_| panic!("data-{attribute} is {value:?}"))
}

/// The page, with something that it does a while after it has begun. It paints by the clock: the browser has one of its own that
/// is ahead of its screen.
fn with_script(page: &str, script: &str) -> String {
    let clock = "<script>window.requestAnimationFrame = (paint) => setTimeout(paint, 16);</script><style>";
    let script = format!("<script>setTimeout(() => {{ {script} }}, 2500);</script></body>");
    page.replacen("<style>", clock, 1).replacen("</body>", &script, 1)
}

/// Counts the pixels of a canvas that are in a colour, and not grey as frames and text are.
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
