//! Scripts for shells know every command, and one shell is asked whether it completes.

use std::process::Command;

use crate::running::Home;

#[test]
fn every_shell_learns_every_command() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ended = home.run(&format!("completions {shell}"));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        for word in ["schedule", "completions", "polling-interval", "config"] {
            assert!(ended.stdout.contains(word), "{shell}: {word}");
        }
    }
    assert!(!home.db().exists());
}

#[test]
fn bash_completes_with_it() {
    let home = Home::new();
    let script = home.path("script");
    std::fs::write(&script, home.run("completions bash").stdout).unwrap();
    let ask = r#"
        source "$1"
        function=$(complete -p timer-service | sed 's/.*-F \([^ ]*\).*/\1/')
        COMP_WORDS=(timer-service sch); COMP_CWORD=1
        "$function" timer-service sch timer-service; echo "${COMPREPLY[@]}"
        COMP_WORDS=(timer-service schedule --ten); COMP_CWORD=2
        "$function" timer-service --ten schedule; echo "${COMPREPLY[@]}"
    "#;
    let asked = Command::new("bash")
        .args(["-c", ask, "ask"])
        .arg(&script)
        .output();
    let Ok(asked) = asked else {
        println!("skipped: there is no bash here");
        return;
    };
    let said = String::from_utf8(asked.stdout).unwrap();
    assert_eq!(said, "schedule\n--tenant\n");
}
