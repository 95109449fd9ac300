//! ringway-switch
