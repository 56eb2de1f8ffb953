-- The API starts as a reader and must tell whether the tables are those that it knows.
GRANT SELECT ON rung.schema_migration TO rung_reader;
