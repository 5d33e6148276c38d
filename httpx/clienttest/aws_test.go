package clienttest_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// awsOver makes a client of a small service whose requests go through p.
func awsOver(p *policy.Pipeline, next http.RoundTripper, url string, retryer func() aws.Retryer) *ebs.Client {
	return ebs.NewFromConfig(aws.Config{
		Region:       "eu-central-1",
		Credentials:  credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""),
		BaseEndpoint: aws.String(url),
		HTTPClient:   &http.Client{Transport: httpx.Transport(p, next)},
		Retryer:      retryer,
	})
}

// quick is the SDK's own retryer, without its waits.
func quick() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = 3, 1 })
}

func never() aws.Retryer { return aws.NopRetryer{} }

func block(ctx context.Context, c *ebs.Client) (*ebs.GetSnapshotBlockOutput, error) {
	return c.GetSnapshotBlock(ctx, &ebs.GetSnapshotBlockInput{
		SnapshotId: aws.String("snap-1"), BlockIndex: aws.Int32(1), BlockToken: aws.String("t"),
	})
}

func start(ctx context.Context, c *ebs.Client) error {
	_, err := c.StartSnapshot(ctx, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	return err
}

// The SDK retries by default, and knows what a refusal is: it is not retried. Only one layer
// retries, also for a POST, which the SDK knows to be safe.
func TestAWSOnlyItsOwn(t *testing.T) {
	url, next, seen := server(t, 2)
	p, permits := pipeline(t, 1)
	c := awsOver(p, next, url, quick)
	require.NoError(t, start(t.Context(), c))
	assert.EqualValues(t, 3, seen.Load())

	full(t, permits)
	require.ErrorIs(t, start(t.Context(), c), policy.ErrRejected)
	assert.EqualValues(t, 1, refusals(p), "a refusal is final")
	assert.EqualValues(t, 3, seen.Load())
}

// With the SDK's retries off, the pipeline's are the only ones. The SDK's requests have no
// GetBody, so one with a body is sent once.
func TestAWSOnlyOurs(t *testing.T) {
	url, next, seen := server(t, 2)
	p, permits := pipeline(t, 3)
	c := awsOver(p, next, url, never)
	out, err := block(t.Context(), c)
	require.NoError(t, err)
	assert.EqualValues(t, 3, seen.Load())
	_, err = io.Copy(io.Discard, out.BlockData)
	require.NoError(t, err)
	require.NoError(t, out.BlockData.Close())
	assert.Zero(t, permits.InFlight())

	url, next, seen = server(t, 2)
	require.Error(t, start(t.Context(), awsOver(p, next, url, never)))
	assert.EqualValues(t, 1, seen.Load())
}

// Both multiply, unless the SDK's retryer listens to what the pipeline says.
func TestAWSBoth(t *testing.T) {
	url, next, seen := server(t, forever)
	p, _ := pipeline(t, 3)
	_, err := block(t.Context(), awsOver(p, next, url, quick))
	require.Error(t, err)
	assert.EqualValues(t, 9, seen.Load(), "3 times 3")

	seen.Store(0)
	c := awsOver(p, next, url, func() aws.Retryer { return listening{quick().(aws.RetryerV2)} })
	_, err = block(policy.WithHop(t.Context(), policy.NewHop(1)), c)
	require.Error(t, err)
	assert.EqualValues(t, 3, seen.Load())
}

// listening is a retryer that makes no further attempt where the pipeline below has retried
// in vain.
type listening struct{ aws.RetryerV2 }

func (l listening) GetRetryToken(ctx context.Context, err error) (func(error) error, error) {
	if policy.HopFrom(ctx).Spent() {
		return nil, err
	}
	return l.RetryerV2.GetRetryToken(ctx, err)
}

// A body that the SDK hands out holds its permit until it is closed.
func TestAWSStream(t *testing.T) {
	url, next, _ := server(t, 0)
	p, permits := pipeline(t, 3)
	out, err := block(t.Context(), awsOver(p, next, url, nil))
	require.NoError(t, err)
	assert.Equal(t, 1, permits.InFlight())
	b, err := io.ReadAll(out.BlockData)
	require.NoError(t, err)
	assert.Equal(t, "answer", string(b))
	require.NoError(t, out.BlockData.Close())
	assert.Zero(t, permits.InFlight())
}
