// Package clienttest tests package httpx under the clients that people have: resty,
// go-retryablehttp and the AWS SDK for Go. It is a module of its own, so that nobody else
// downloads them.
package clienttest
