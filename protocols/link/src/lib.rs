//! skink-link
