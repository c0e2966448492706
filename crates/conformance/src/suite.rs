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
                        $crate::run(Box::pin(async { $crate::cases::$module::$case(Box::new($d fixture)).await }));
                    }
                )+
            };
        }
    };
}

/// A module of tests for each suite.
#[doc(hidden)]
#[macro_export]
macro_rules! suites_in_modules {
    ($fixture:expr => $($module:ident: $suite:ident),+ $(,)?) => {
        $(
            mod $module {
                use super::*;
                $crate::$suite!($fixture);
            }
        )+
    };
}

/// Everything that a store of timers has to pass. With `optional`, the expression makes an `Option`, and
/// where it is `None`, because a server is missing, nothing is tested.
#[macro_export]
macro_rules! timer_store_suites {
    ($fixture:expr) => {
        $crate::timer_store_suites!(optional Some($fixture));
    };
    (optional $fixture:expr) => {
        $crate::suites_in_modules! { match $fixture { Some(fixture) => fixture, None => return } =>
            saving: timer_save_suite,
            marking: timer_mark_suite,
            deleting: timer_delete_suite,
            reading: timer_read_suite,
            purging: timer_purge_suite,
            claiming: timer_claim_suite,
            fairness: timer_fairness_suite,
            settling: timer_settle_suite,
            instances: timer_instances_suite,
            store_clock: timer_store_clock_suite,
            fired_since: timer_fired_suite,
            dead_letters: dead_letter_suite,
            bus_positions: bus_position_suite,
        }
        mod histories {
            use super::*;
            #[test]
            fn every_random_history_matches_the_model() {
                $crate::state_machine::check(|| async { $fixture });
            }
            #[test]
            fn every_random_history_of_two_instances_matches_the_model() {
                $crate::state_machine::check_two_instances(|| async { $fixture });
            }
        }
    };
}

/// Everything that a store of service calls has to pass, with `optional` as for timers.
#[macro_export]
macro_rules! call_store_suites {
    ($fixture:expr) => {
        $crate::call_store_suites!(optional Some($fixture));
    };
    (optional $fixture:expr) => {
        $crate::suites_in_modules! { match $fixture { Some(fixture) => fixture, None => return } =>
            submitting: call_submit_suite,
            changing: call_change_suite,
            deleting: call_delete_suite,
            reading: call_read_suite,
            paging: call_page_suite,
            purging: call_purge_suite,
            call_instances: call_instances_suite,
        }
        $crate::execution_store_suites!(optional $fixture);
    };
}

/// Everything that a store of attempts and their messages has to pass whose calls are in another database,
/// with `optional` as for timers.
#[macro_export]
macro_rules! execution_store_suites {
    ($fixture:expr) => {
        $crate::execution_store_suites!(optional Some($fixture));
    };
    (optional $fixture:expr) => {
        $crate::suites_in_modules! { match $fixture { Some(fixture) => fixture, None => return } =>
            outbox: outbox_suite,
            attempts: attempt_steps_suite,
            turns: attempt_turns_suite,
            apart: attempt_apart_suite,
            attempt_instances: attempt_instances_suite,
            outbox_instances: outbox_instances_suite,
        }
    };
}
