// Package rows is the SQL of the store as Go functions. sqlc makes all of it but
// this file from the queries and migrations beside it; run go generate
// ./internal/sqlstore after a change.
package rows
