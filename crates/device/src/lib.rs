//! ringway-device
