package frameworks

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// region fiber

// Fiber makes a middleware of a pipeline, without net/http: fiber has its own requests. Refusals
// are errors like any other, for FiberError. The key may be nil; fiber's strings live as long as
// the request, and a limiter keeps its keys, so the key is copied.
func Fiber(p *policy.Pipeline, key func(c fiber.Ctx) string) fiber.Handler {
	return func(c fiber.Ctx) error {
		call := policy.CallFrom(c.Context())
		call.NoRetry = true
		if key != nil {
			call.Key = strings.Clone(key(c))
		}
		h, err := p.EnterCall(c.Context(), &call)
		if err != nil {
			if limits, left := httpx.FormatQuotas(p.Quotas(c.Context(), &call, nil)); limits != "" {
				c.Set("RateLimit-Policy", limits)
				c.Set("RateLimit", left)
			}
			return err
		}
		defer h.Release() // a panic counts as a failure
		if h.Bounded() {
			c.SetContext(h.Context())
		}
		err = c.Next()
		if fe, ok := errors.AsType[*fiber.Error](err); ok {
			h.Settle(httpx.AnswerKind(fe.Code), 0)
		} else if err != nil {
			h.Leave(err)
		} else {
			h.Settle(httpx.AnswerKind(c.Response().StatusCode()), 0)
		}
		return err
	}
}

// FiberError is a fiber.ErrorHandler: errors of fiber's own are answered with their status, and
// all else as httpx.WriteError does it without a server.
func FiberError(c fiber.Ctx, err error) error {
	p := httpx.ProblemOf(c.Context(), err)
	if fe, ok := errors.AsType[*fiber.Error](err); ok {
		p = &httpx.Problem{Status: fe.Code, Detail: fe.Message}
	}
	if s, ok := p.RetryAfterSeconds(); ok {
		c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(s, 10))
	}
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, "application/problem+json")
	return c.Status(p.Status).Send(body)
}

// endregion
