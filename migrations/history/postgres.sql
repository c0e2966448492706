CREATE TABLE IF NOT EXISTS punctual_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    set_name text NOT NULL,
    applied_at timestamptz(3) NOT NULL,
    app_version text NOT NULL
)
