//! skink-end-to-end
