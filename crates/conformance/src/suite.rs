//! How cases become tests of an adapter.

/// Makes a macro of the cases in a file: called with an expression that makes a fixture, it
/// expands to one `#[test]` for each case. The `$` in front is what lets a macro write a macro.
macro_rules! suite {
    ($d:tt $name:ident, $module:ident => $($case:ident),+ $(,)?) => {
        /// One test for each case of this suite, on the fixture that the expression makes.
        #[macro_export]
        macro_rules! $name {
            ($d fixture:expr) => {
                $(
                    #[test]
                    fn $case() {
                        $crate::run(async { $crate::cases::$module::$case($d fixture).await });
                    }
                )+
            };
        }
    };
}

/// Everything that a store of timers has to pass.
#[macro_export]
macro_rules! timer_store_suites {
    ($fixture:expr) => {
        mod saving {
            use super::*;
            $crate::timer_save_suite!($fixture);
        }
        mod marking {
            use super::*;
            $crate::timer_mark_suite!($fixture);
        }
        mod deleting {
            use super::*;
            $crate::timer_delete_suite!($fixture);
        }
        mod reading {
            use super::*;
            $crate::timer_read_suite!($fixture);
        }
        mod purging {
            use super::*;
            $crate::timer_purge_suite!($fixture);
        }
        mod claiming {
            use super::*;
            $crate::timer_claim_suite!($fixture);
        }
        mod fairness {
            use super::*;
            $crate::timer_fairness_suite!($fixture);
        }
        mod settling {
            use super::*;
            $crate::timer_settle_suite!($fixture);
        }
        mod fired_since {
            use super::*;
            $crate::timer_fired_suite!($fixture);
        }
        mod dead_letters {
            use super::*;
            $crate::dead_letter_suite!($fixture);
        }
        mod bus_positions {
            use super::*;
            $crate::bus_position_suite!($fixture);
        }
        mod histories {
            use super::*;
            #[test]
            fn every_random_history_matches_the_model() {
                $crate::state_machine::check(|| async { $fixture });
            }
        }
    };
}

/// Everything that a store of service calls has to pass.
#[macro_export]
macro_rules! call_store_suites {
    ($fixture:expr) => {
        mod submitting {
            use super::*;
            $crate::call_submit_suite!($fixture);
        }
        mod changing {
            use super::*;
            $crate::call_change_suite!($fixture);
        }
        mod deleting {
            use super::*;
            $crate::call_delete_suite!($fixture);
        }
        mod reading {
            use super::*;
            $crate::call_read_suite!($fixture);
        }
        mod paging {
            use super::*;
            $crate::call_page_suite!($fixture);
        }
        mod purging {
            use super::*;
            $crate::call_purge_suite!($fixture);
        }
        mod outbox {
            use super::*;
            $crate::outbox_suite!($fixture);
        }
        mod attempts {
            use super::*;
            $crate::attempt_steps_suite!($fixture);
        }
        mod turns {
            use super::*;
            $crate::attempt_turns_suite!($fixture);
        }
    };
}
