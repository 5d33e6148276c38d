package policy

import "context"

// Classify judges an error as the pipeline does one of its function, which ran under ctx:
// by its own classifiers first, see [ClassifyErrors], and then as the function [Classify]. A
// nil pipeline has none of its own. It is for what stands around a pipeline and must agree
// with it, such as a cache that remembers permanent errors.
func (p *Pipeline) Classify(ctx context.Context, err error) Outcome {
	if p == nil || err == nil {
		return Classify(ctx, err)
	}
	return p.plan.Load().classify(ctx, err)
}
