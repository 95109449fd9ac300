//! Tables that tests make and documents show: committed text, so that a change is seen in review.
//!
//! How: in a document below `docs/` a table stands between `<!-- table NAME -->` and
//! `<!-- end NAME -->`. With `RINGWAY_ACCEPT=1` in the environment the table there is replaced,
//! otherwise it must be the one given. Limits: run from the tree the test was built in.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

/// Tests run side by side, and several may replace a table of one document.
static DOCUMENTS: Mutex<()> = Mutex::new(());

/// Name of the environment variable that accepts tables as they are now.
const ACCEPT_VARIABLE: &str = "RINGWAY_ACCEPT";

/// Compares `text` with the table `name` in `docs/document`; panics when they differ.
pub fn compare(document: &str, name: &str, text: &str) {
    let _documents = DOCUMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let whole = fs::read_to_string(&path).expect("the document");
    let (starts, ends) = (format!("<!-- table {name} -->"), format!("<!-- end {name} -->"));
    let (before, rest) = whole.split_once(&starts).expect("a place for the table");
    let (committed, after) = rest.split_once(&ends).expect("the end of the table");
    let text = format!("\n```\n{text}```\n");
    if env::var_os(ACCEPT_VARIABLE).is_some() {
        fs::write(&path, format!("{before}{starts}{text}{ends}{after}")).expect("writable");
    } else {
        assert!(
            committed == text,
            "docs/{document}: the table {name} is now (accept with {ACCEPT_VARIABLE}=1):\n{text}"
        );
    }
}
