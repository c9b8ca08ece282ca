//! The pages in a browser: that they draw what they are given, without an error.
//!
//! Chromium is needed; where there is none, these tests have nothing to say. `.ci/run` installs it.

use std::process::Command;

use super::*;

/// Loads a page, lets it run for a while, and gives what it has become and what it has said to its console. Nothing
/// without a browser.
fn loaded(url: &str) -> Option<(String, String)> {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())?;
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--enable-logging=stderr", "--window-size=1400,900"])
        .args(["--virtual-time-budget=5000", "--dump-dom", url])
        .output()
        .expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stderr);
    let console = said.lines().filter(|line| line.contains("CONSOLE"));
    Some((text(&output.stdout), console.collect::<Vec<_>>().join("\n")))
}

#[test]
fn the_page_of_a_recording_draws_everything() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder, "t.json");
    let written = telegrad(folder, &["trace", "view", "t.json", "-o", "page.html"]).status();
    assert!(written.unwrap().success());
    let page = format!("file://{}/page.html", folder.display());
    for (tab, shown) in [
        ("timeline", "data-testid=\"timeline\""),
        ("table", "DistributedOptimizer::step"),
        ("traffic", "data-testid=\"traffic\""),
        ("critical", "data-testid=\"critical\""),
    ] {
        let Some((page, console)) = loaded(&format!("{page}#tab={tab}")) else {
            return;
        };
        assert_eq!(console, "", "on {tab}");
        assert!(page.contains("data-ready=\"true\""), "{tab} is not drawn");
        let events = page
            .split("data-events=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let events: usize = events.and_then(|count| count.parse().ok()).unwrap_or(0);
        assert!(tab != "timeline" || events > 20, "{events} events are drawn");
        assert!(page.contains(shown), "no {shown} on {tab}");
    }
}

#[test]
fn the_dashboard_draws_the_workers() {
    let mut running = Running::start(&["--dashboard"]);
    let address = running.dashboard();
    until(|| {
        let (_, seen) = get(&address, "/status.json");
        let has_both = seen.contains("\"client\"") && seen.contains("\"server\"");
        has_both.then_some(()).ok_or(seen)
    });
    let Some((page, console)) = loaded(&format!("http://{address}/")) else {
        return;
    };
    assert_eq!(console, "");
    for shown in [
        "data-testid=\"worker-0\"",
        "data-testid=\"worker-1\"",
        "client",
        "server",
        "chart-calls",
    ] {
        assert!(page.contains(shown), "no {shown} in\n{page}");
    }
}
