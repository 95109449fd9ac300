//! How large some parts of the tree may become, as text.
//!
//! How: lines before the tests are counted, comments among them. A part that needs more has become
//! a different thing: it is cut, or its limit is changed here with the reason in the commit.

use syn::{ImplItem, Item, ItemImpl, Type, Visibility};

use super::source::Source;

/// Moderation: files, lines, constants with a number, public methods, causes.
const MODERATION: &str = "crates/net/src/moderation/";
const MODERATION_LINES_MAX: usize = 700;
const CONSTANTS_MAX: usize = 12;
const METHODS_MAX: usize = 5;
const CAUSES_MAX: usize = 6;

/// Everything that decides when to notify, to look or to sleep.
const PACING: [&str; 5] = [
    MODERATION,
    "crates/net/src/polling.rs",
    "crates/host/src/pace.rs",
    "crates/host/src/pace/",
    "crates/host/src/uml.rs",
];
const PACING_LINES_MAX: usize = 1_500;

/// The worker's crate: files that lie in no folder, files with methods of `Worker`, fields.
const HOST: &str = "crates/host/src/";
const HOST_FILES_MAX: usize = 4;
const WORKER_FILES_MAX: usize = 4;
const WORKER_FIELDS_MAX: usize = 12;
const PORT_FIELDS_MAX: usize = 10;

const NUMBERS: [&str; 6] = ["u8", "u16", "u32", "u64", "usize", "Nanos"];

pub fn complaints(sources: &[Source]) -> Vec<String> {
    let within = |place| sources.iter().filter(move |source| source.name.starts_with(place));
    let count = |place, of: fn(&Source) -> usize| within(place).map(of).sum::<usize>();
    let host = || within(HOST);
    let at_top = host().filter(|source| !source.name[HOST.len()..].contains('/')).count();
    let of_worker = host().filter(|source| impls_of(source, "Worker").next().is_some()).count();
    let fields = |of| host().map(|source| entries(source, of)).max().unwrap_or(0);
    let methods = count(MODERATION, |source| public_methods(source, "Moderator"));
    [
        over(MODERATION, "lines", lines(sources, &[MODERATION]), MODERATION_LINES_MAX),
        over(MODERATION, "constants", count(MODERATION, constants), CONSTANTS_MAX),
        over(MODERATION, "public methods of Moderator", methods, METHODS_MAX),
        over(MODERATION, "causes", count(MODERATION, |it| entries(it, "Cause")), CAUSES_MAX),
        // The same together with what waits and looks on its behalf.
        over(&PACING.join(", "), "lines", lines(sources, &PACING), PACING_LINES_MAX),
        over(HOST, "files in no folder", at_top, HOST_FILES_MAX),
        over(HOST, "files with impl Worker", of_worker, WORKER_FILES_MAX),
        over(HOST, "fields of Worker", fields("Worker"), WORKER_FIELDS_MAX),
        over(HOST, "fields of Port", fields("Port"), PORT_FIELDS_MAX),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn over(place: &str, what: &str, count: usize, max: usize) -> Option<String> {
    (count > max).then(|| format!("{place}: {count} {what}, at most {max}"))
}

fn lines(sources: &[Source], places: &[&str]) -> usize {
    let is_there = |source: &&Source| places.iter().any(|place| source.name.starts_with(place));
    sources.iter().filter(is_there).map(|source| source.production_lines).sum()
}

/// The blocks of a type's own methods.
fn impls_of<'a>(source: &'a Source, owner: &'a str) -> impl Iterator<Item = &'a ItemImpl> {
    impls(source).filter(move |item| item.trait_.is_none() && is_named(&item.self_ty, owner))
}

fn impls(source: &Source) -> impl Iterator<Item = &ItemImpl> {
    let items = source.items.iter().filter(|_| source.production_lines > 0);
    items.filter_map(|item| if let Item::Impl(item) = item { Some(item) } else { None })
}

fn is_named(kind: &Type, name: &str) -> bool {
    let Type::Path(path) = kind else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == name)
}

fn constants(source: &Source) -> usize {
    let of_file = source.items.iter().filter_map(|item| match item {
        Item::Const(item) => Some(&*item.ty),
        _ => None,
    });
    let of_types = impls(source).flat_map(|item| &item.items).filter_map(|item| match item {
        ImplItem::Const(item) => Some(&item.ty),
        _ => None,
    });
    let is_number = |kind: &&Type| NUMBERS.iter().any(|number| is_named(kind, number));
    of_file.chain(of_types).filter(is_number).count()
}

fn public_methods(source: &Source, owner: &str) -> usize {
    let is_public = |item: &&ImplItem| {
        let ImplItem::Fn(method) = item else { return false };
        matches!(method.vis, Visibility::Public(_))
    };
    impls_of(source, owner).flat_map(|item| &item.items).filter(is_public).count()
}

/// Fields of a structure, or variants of an enumeration.
fn entries(source: &Source, name: &str) -> usize {
    let of = |item: &Item| match item {
        Item::Struct(item) if item.ident == name => item.fields.len(),
        Item::Enum(item) if item.ident == name => item.variants.len(),
        _ => 0,
    };
    source.items.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moderation_with(text: &str) -> Vec<String> {
        complaints(&[Source::new("crates/net/src/moderation/a.rs", text)])
    }

    fn host_with(name: &str, text: &str) -> Vec<String> {
        complaints(&[Source::new(&format!("crates/host/src/{name}"), text)])
    }

    #[test]
    fn lines_before_the_tests_count() {
        let text = "//\n".repeat(MODERATION_LINES_MAX);
        assert!(moderation_with(&text).is_empty());
        let found = moderation_with(&format!("{text}\n"));
        assert_eq!(found, ["crates/net/src/moderation/: 701 lines, at most 700"]);
        assert!(moderation_with(&format!("{text}#[cfg(test)]\nmod tests {{\n}}\n")).is_empty());
    }

    #[test]
    fn numbers_are_constants_and_values_are_not() {
        let others = "const A: Self = Self(0);\nconst fn f(a: u32) -> u32 {\n    a\n}\n// const\n";
        let twelve = "    pub(super) const B: u32 = 3;\n".repeat(CONSTANTS_MAX);
        assert!(moderation_with(&format!("{others}{twelve}")).is_empty());
        let one_more = format!("{others}{twelve}const C: Nanos = Nanos(1);\n");
        assert!(moderation_with(&one_more)[0].contains("13 constants"));
    }

    #[test]
    fn public_methods_and_causes_are_counted() {
        let methods = "    pub fn f(&self) {\n        pub fn inner() {}\n    }\n    fn g() {}\n";
        let five = methods.repeat(METHODS_MAX);
        assert!(moderation_with(&format!("impl Moderator {{\n{five}}}\n{methods}")).is_empty());
        let six = methods.repeat(METHODS_MAX + 1);
        assert_eq!(moderation_with(&format!("impl Moderator {{\n{six}}}\n")).len(), 1);
        let causes =
            "    /// Why\n    #[default]\n    A,\n    B {\n        c: u8,\n    },\n".repeat(3);
        assert!(moderation_with(&format!("pub enum Cause {{\n{causes}}}\n")).is_empty());
        assert_eq!(moderation_with(&format!("pub enum Cause {{\n{causes}    C,\n}}\n")).len(), 1);
    }

    #[test]
    fn pacing_is_a_sum() {
        let half = |name: &str| Source::new(name, &"//\n".repeat(750));
        let sources = [half("crates/net/src/polling.rs"), half("crates/host/src/pace/mod.rs")];
        assert!(complaints(&sources).is_empty());
        let more = Source::new("crates/host/src/uml.rs", "//\n");
        let [first, second] = sources;
        assert!(complaints(&[first, second, more])[0].contains("1501 lines"));
    }

    #[test]
    fn the_rooms_of_host_are_counted() {
        let at_top: Vec<Source> =
            (0..5).map(|n| Source::new(&format!("crates/host/src/{n}.rs"), "//\n")).collect();
        assert!(complaints(&at_top[1..]).is_empty());
        assert_eq!(complaints(&at_top), ["crates/host/src/: 5 files in no folder, at most 4"]);
        let field = "    pub(crate) a: u8,\n";
        let port = format!("pub struct Port {{\n{}}}\n", field.repeat(PORT_FIELDS_MAX));
        assert!(host_with("port/mod.rs", &port).is_empty());
        let port = port.replace("Port {\n", "Port {\n    /// More\n    b: u8,\n");
        assert!(host_with("port/mod.rs", &port)[0].contains("11 fields of Port"));
        let worker = format!("struct Worker {{\n{}}}\n", field.repeat(WORKER_FIELDS_MAX + 1));
        assert!(host_with("worker/mod.rs", &worker)[0].contains("13 fields of Worker"));
    }

    #[test]
    fn files_with_methods_of_the_worker_are_counted() {
        for (line, is_one) in [
            ("impl Worker {", true),
            ("impl<'a> Worker<'a> {", true),
            ("impl Drop for Worker {", false),
            ("impl WorkerClient {", false),
        ] {
            let source = Source::new("crates/host/src/worker/a.rs", &format!("{line} }}\n"));
            assert_eq!(impls_of(&source, "Worker").count() == 1, is_one, "{line}");
        }
    }
}
