-- What a tenant has ready, or will have: a claim that is shared between tenants, or that passes some of
-- them over, finds each one's next timer in one step, however many of its timers are put off or claimed.

CREATE INDEX idx_timer_schedules_tenant_ready
-- The worker's, tenant by tenant: what each has due next.
ON timer_schedules(tenant_id, coalesce(retry_at, due_at))
WHERE state = 'Scheduled';
