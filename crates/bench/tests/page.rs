//! The page of a report in a real browser: nothing is cut off on a telephone and on a desk, by day
//! and by night, and ringway has one colour.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const WIDTHS: [u64; 2] = [1280, 390];
/// A smaller window than a browser has: the page is in a frame of this width.
const FRAME: &str = r#"<body style="margin:0"><iframe src="page.html" style="border:0;height:3000px;
width:WIDTHpx"></iframe><script>addEventListener("load", () => document.body.setAttribute(
"data-found", frames[0].document.body.getAttribute("data-found")))</script>"#;

/// Appended to the page: what the browser made of it becomes an attribute.
const LOOK: &str = r#"<script>addEventListener("load", () => {
    const width = document.documentElement.clientWidth, over = [], colours = {};
    for (const it of document.querySelectorAll("body *")) {
        const right = it.getBoundingClientRect().right;
        if (right > width + 1 && !it.closest("div.w table")) over.push(it.tagName + right);
    }
    for (const it of document.querySelectorAll(".b i")) {
        const own = it.closest(".b").firstChild.textContent;
        const colour = getComputedStyle(it).backgroundColor;
        const who = own.includes("ringway") ? "ringway" : "other";
        (colours[who] ??= new Set()).add(colour);
    }
    const style = getComputedStyle(document.body);
    const found = { width, wide: document.documentElement.scrollWidth, over,
        first: document.querySelector("h1").nextElementSibling.id,
        ringway: [...colours.ringway ?? []], other: [...colours.other ?? []],
        text: style.color, behind: style.backgroundColor };
    document.body.setAttribute("data-found", JSON.stringify(found));
});</script>"#;

fn browser(directory: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    command.arg(format!("--user-data-dir={}", directory.join("browser").display()));
    let output = command.args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// The browser's report about the page in a window of that width.
fn found(directory: &Path, width: u64, is_dark: bool) -> Option<Value> {
    let frame = directory.join("frame.html");
    std::fs::write(&frame, FRAME.replace("WIDTH", &width.to_string())).expect("written");
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!is_dark));
    let address = format!("file://{}", frame.display());
    let access = "--allow-file-access-from-files";
    let dom = browser(directory, &[&scheme, access, "--dump-dom", &address])?;
    let dom = String::from_utf8(dom).expect("text");
    let (_, found) = dom.split_once("data-found=\"")?;
    let found = found.split('"').next()?.replace("&quot;", "\"");
    serde_json::from_str(&found).ok()
}

/// Width and height of a picture, and its length (PNG: IHDR comes first).
fn picture(directory: &Path, width: u64) -> (u32, u32, usize) {
    let file = directory.join(format!("page-{width}.png"));
    let picture = format!("--screenshot={}", file.display());
    let address = format!("file://{}", directory.join("frame.html").display());
    let size = format!("--window-size={width},2000");
    browser(directory, &[&picture, &size, "--allow-file-access-from-files", &address]);
    let bytes = std::fs::read(&file).expect("a picture");
    let number = |at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().expect("a header"));
    (number(16), number(20), bytes.len())
}

#[test]
fn a_page_is_whole_in_a_browser_by_day_and_by_night() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.html");
    if browser(directory.path(), &["--dump-dom", "about:blank"]).is_none() {
        return println!("skipped: no chromium");
    }
    let measured = Command::new(env!("CARGO_BIN_EXE_ringway-bench"))
        .args(["ring", "--seconds", "0.02", "--repeats", "2", "--sizes", "65536", "--html"])
        .arg(&page)
        .output()
        .expect("it starts");
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
    let text = std::fs::read_to_string(&page).expect("the page");
    std::fs::write(&page, text + LOOK).expect("written");
    for width in WIDTHS {
        let [day, night] =
            [false, true].map(|is_dark| found(directory.path(), width, is_dark).expect("looked"));
        for found in [&day, &night] {
            assert_eq!((&found["width"], &found["wide"]), (&width.into(), &width.into()));
            assert_eq!(found["over"], Value::Array(vec![]), "cut off at {width}: {found}");
            assert_eq!(found["first"], "verdict");
            let colours = found["ringway"].as_array().expect("a list");
            assert_eq!(colours.len(), 1, "{found}");
            let others = found["other"].as_array().expect("a list");
            assert!(!others.is_empty() && !others.contains(&colours[0]), "{found}");
        }
        assert_eq!([&day["behind"], &night["behind"]], ["rgb(255, 255, 255)", "rgb(22, 24, 28)"]);
        let (wide, _, len) = picture(directory.path(), width);
        assert!(u64::from(wide) >= width && len > 10_000, "{wide} pixels, {len} bytes");
    }
}
