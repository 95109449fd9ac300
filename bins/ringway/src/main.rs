//! ringway
fn main() {}
