package top

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/dashboard"
)

const (
	answerWithin = 5 * time.Second
	longest      = 64 << 20 // of an answer
	longestFile  = 64 << 10 // of a file of headers
)

// Client reads a dashboard.
type Client struct {
	base   *url.URL
	header http.Header
	http   *http.Client
}

// NewClient returns a client of the dashboard at the given address, such as
// "http://host/breakwater/". It sends the headers with every request, to that host alone.
func NewClient(address string, header http.Header) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("top: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("top: %q is no address of a dashboard: want one such as http://localhost:8080/breakwater/", address)
	}
	if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
	}
	u.RawQuery, u.Fragment = "", ""
	return &Client{base: u, header: header, http: &http.Client{
		Timeout: answerWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the headers are for this host
		},
	}}, nil
}

// ReadHeaders reads a file with one header a line, such as "Authorization: Bearer …".
// Empty lines and lines that begin with # are left out.
func ReadHeaders(name string) (http.Header, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("top: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, longestFile+1))
	if err != nil {
		return nil, fmt.Errorf("top: %w", err)
	}
	if len(text) > longestFile {
		return nil, fmt.Errorf("top: %s is longer than 64 KiB", name)
	}
	h := http.Header{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(key) == "" {
			return nil, fmt.Errorf("top: %s:%d: want a header such as Authorization: Bearer …", name, n) // without the line: it may be a secret
		}
		h.Add(textproto.TrimString(key), textproto.TrimString(value))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("top: %s: %w", name, err)
	}
	return h, nil
}

// Overview reads all dependencies.
func (c *Client) Overview(ctx context.Context) (o dashboard.Overview, err error) {
	return o, c.get(ctx, "api/snapshot", "", &o)
}

// Detail reads one dependency.
func (c *Client) Detail(ctx context.Context, name string) (d dashboard.Detail, err error) {
	return d, c.get(ctx, "api/dependency", name, &d)
}

func (c *Client) get(ctx context.Context, path, name string, to any) error {
	u := *c.base
	u.Path += path
	if name != "" {
		u.RawQuery = url.Values{"name": {name}}.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	for key, values := range c.header {
		if http.CanonicalHeaderKey(key) == "Host" {
			req.Host = values[0]
			continue
		}
		req.Header[key] = values
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, longest))
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(body, &e) == nil && e.Error != "" {
			return fmt.Errorf("top: %s: %s", resp.Status, e.Error)
		}
		if resp.StatusCode == http.StatusNotFound {
			return fmt.Errorf("top: %s: there is no dashboard at this address: want the one where it is mounted, such as http://localhost:8080/breakwater/", resp.Status)
		}
		return fmt.Errorf("top: %s", resp.Status)
	}
	if err := json.Unmarshal(body, to); err != nil {
		return errors.New("top: what is there is no dashboard: it does not answer in its JSON")
	}
	return nil
}
