//! What the workspace consists of, asked of cargo so that no list of crates is kept twice.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process;

/// A member of the workspace, reduced to what the commands need.
#[derive(Debug, Clone, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Where it lives, relative to the root: `crates/domain`.
    pub(crate) dir: String,
    /// Every feature but `default`.
    pub(crate) features: Vec<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a `[dependencies]` table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) dev: bool,
}

/// The workspace as cargo sees it.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_dir: PathBuf,
}

/// The nearest folder at or above the current one that holds `xtask/`.
pub(crate) fn root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("failed to find the current folder")?;
    here.ancestors()
        .find(|folder| folder.join("xtask/Cargo.toml").is_file())
        .map(Path::to_path_buf)
        .context("failed to find the workspace: run this inside the repository")
}

/// Asks cargo for the members; reads manifests only, so a crate that does not compile is no obstacle.
pub(crate) fn load(root: &Path) -> Result<Workspace> {
    let mut command = process::cargo(root);
    command.args([
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ]);
    let output = command.output().context("failed to start cargo metadata")?;
    ensure!(
        output.status.success(),
        "failed to read the workspace's manifests: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    from_metadata(&serde_json::from_slice(&output.stdout)?)
}

fn from_metadata(metadata: &Value) -> Result<Workspace> {
    let root = PathBuf::from(text(metadata, "workspace_root")?);
    let packages = metadata["packages"]
        .as_array()
        .context("failed to find `packages` in cargo's metadata")?
        .iter()
        .map(|package| read_package(package, &root))
        .collect::<Result<_>>()?;
    Ok(Workspace {
        packages,
        target_dir: PathBuf::from(text(metadata, "target_directory")?),
    })
}

fn read_package(package: &Value, root: &Path) -> Result<Package> {
    let manifest = PathBuf::from(text(package, "manifest_path")?);
    let dir = manifest.parent().unwrap_or(root);
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    Ok(Package {
        name: text(package, "name")?.to_owned(),
        dir: dir
            .strip_prefix(root)
            .unwrap_or(dir)
            .to_string_lossy()
            .into_owned(),
        features: package["features"]
            .as_object()
            .into_iter()
            .flat_map(|features| features.keys().cloned())
            .filter(|feature| feature != "default")
            .collect(),
        dependencies: dependencies
            .map(|dependency| {
                Ok(Dependency {
                    name: text(dependency, "name")?.to_owned(),
                    dev: dependency["kind"] == "dev",
                })
            })
            .collect::<Result<_>>()?,
    })
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key]
        .as_str()
        .with_context(|| format!("failed to find `{key}` in cargo's metadata"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_is_reduced_to_names_folders_features_and_dependencies() {
        let workspace = from_metadata(&json!({
            "workspace_root": "/w",
            "target_directory": "/w/target",
            "packages": [{
                "name": "punctual-ports",
                "manifest_path": "/w/crates/ports/Cargo.toml",
                "features": { "default": ["testing"], "testing": [] },
                "dependencies": [
                    { "name": "punctual-domain", "kind": null },
                    { "name": "tokio", "kind": "dev" },
                ],
            }],
        }))
        .unwrap();

        let package = &workspace.packages[0];
        assert_eq!(package.dir, "crates/ports");
        assert_eq!(package.features, ["testing"]);
        assert!(!package.dependencies[0].dev);
        assert!(package.dependencies[1].dev);
        assert_eq!(workspace.target_dir, Path::new("/w/target"));
    }

    #[test]
    fn this_workspace_can_be_read() {
        let workspace = load(&root().unwrap()).unwrap();
        assert!(workspace.packages.iter().any(|p| p.dir == "xtask"));
    }
}
