// Package grafana holds dashboards for the metrics of package otelx, as code, and next
// to them the recording and alert rules for Prometheus:
//
//   - dashboards/*.json, which `make dashboards` writes from this package
//   - rules/*.yml, kept by hand
//
// Users import the files. The module is never released, since its code is of use only
// to those who change them; so nothing of what it needs reaches a user.
package grafana
