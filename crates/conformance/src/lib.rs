//! The contract of every port as test cases that each adapter runs.
