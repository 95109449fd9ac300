//! ringway-driver
