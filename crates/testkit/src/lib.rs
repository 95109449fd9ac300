//! ringway-testkit
