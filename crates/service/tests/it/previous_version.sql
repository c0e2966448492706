BEGIN TRANSACTION;
CREATE TABLE bus_positions (
    stream TEXT PRIMARY KEY,
    -- Which stream of that name: when the broker made it, in the broker's own words.
    made_at TEXT NOT NULL,
    -- The highest sequence that was acknowledged, and the deduplication id of the message that has
    -- it: somebody else may have pushed the sequence past ours since.
    last_sequence INTEGER NOT NULL,
    last_message_id TEXT NOT NULL,
    -- When it was acknowledged: what a broker may have lost lies shortly before.
    acknowledged_at TEXT NOT NULL,
    -- Whatever was published before this instant and acknowledged has a sequence up to that one.
    covers_until TEXT NOT NULL
) STRICT;
CREATE TABLE dead_letters (
    -- What could never be handled, byte for byte, in the order in which it was given up.
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The same letter put down twice is one letter.
    id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    -- Null if the message did not even say whose it is.
    tenant_id TEXT,
    payload BLOB NOT NULL,
    reason TEXT NOT NULL,
    failed_at TEXT NOT NULL
) STRICT;
CREATE TABLE "http_execution_log" (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    -- When the attempt began; until then, when it was asked for.
    started_at TEXT NOT NULL,
    finished_at TEXT,
    -- What may be shown of the request: its secrets are blotted out, its body is cut.
    request_url TEXT NOT NULL,
    request_method TEXT NOT NULL,
    request_headers TEXT NOT NULL,
    request_body TEXT,
    -- What may be shown of the answer.
    response_status TEXT,
    response_headers TEXT,
    response_body TEXT,
    error_message TEXT,
    correlation_id TEXT NOT NULL,
    state TEXT NOT NULL,
    timeout_ms INTEGER NOT NULL,
    -- The host that the request goes to, whose turn it is.
    host TEXT NOT NULL,
    -- The request with its secrets, as it is to be sent; null once the attempt has finished.
    request_spec TEXT,
    -- The whole outcome: an answer if it has a status, a failure if it has a kind.
    outcome_meta TEXT,
    PRIMARY KEY (tenant_id, service_call_id, execution_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE,
    CHECK (request_method IN ('GET', 'POST', 'PUT', 'DELETE', 'PATCH')),
    CHECK (state IN ('Waiting', 'Attempted', 'Finished'))
) STRICT;
INSERT INTO "http_execution_log" VALUES('t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','01a1f1a5-7906-7681-84f8-678f0d167ccb','2026-11-19T02:31:55.946Z','2026-11-19T02:31:55.963Z','http://127.0.0.1:47999/ok/succeeded','POST','{"Authorization":"[redacted]"}','body of succeeded','200','{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:55 GMT","server":"BaseHTTP/0.6 Python/3.11.7"}','ok',NULL,'01a1f1a5-78f6-7434-bbfb-d955c5159ddd','Finished',30000,'127.0.0.1:47999',NULL,'{"status":200,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:55 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":6}');
INSERT INTO "http_execution_log" VALUES('t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','01a1f1a5-791f-700c-9987-14d9f72b1f36','2026-11-19T02:31:55.978Z','2026-11-19T02:31:55.988Z','http://127.0.0.1:47999/status/500','POST','{"Authorization":"[redacted]"}','body of answered-500','500','{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:55 GMT","server":"BaseHTTP/0.6 Python/3.11.7"}','ok','the target answered 500','01a1f1a5-7903-75da-a3aa-41a9da578014','Finished',30000,'127.0.0.1:47999',NULL,'{"kind":"HttpStatus","message":"the target answered 500","details":{"status":500,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:55 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":1},"latencyMs":1}');
INSERT INTO "http_execution_log" VALUES('t2','01a1f1a5-7d33-7439-8029-b5a22ab75acd','01a1f1a5-7d52-777e-8428-8e11595cd781','2026-11-19T02:31:57.054Z',NULL,'http://127.0.0.1:47999/hang/0','POST','{"Authorization":"[redacted]"}','body of hang-0',NULL,NULL,NULL,NULL,'01a1f1a5-7d33-7439-8029-b5a01d8fb0e6','Attempted',30000,'127.0.0.1:47999','{"method":"POST","url":"http://127.0.0.1:47999/hang/0","headers":{"Authorization":"Bearer s3cret-of-hang-0"},"body":"body of hang-0"}',NULL);
INSERT INTO "http_execution_log" VALUES('t2','01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c','01a1f1a5-7f6f-77a3-a52a-4f1f78cf8d40','2026-11-19T02:31:57.585Z',NULL,'http://127.0.0.1:47999/hang/64','POST','{"Authorization":"[redacted]"}','body of hang-64',NULL,NULL,NULL,NULL,'01a1f1a5-7f4f-7709-8dab-cf2b4e5b4bee','Waiting',30000,'127.0.0.1:47999','{"method":"POST","url":"http://127.0.0.1:47999/hang/64","headers":{"Authorization":"Bearer s3cret-of-hang-64"},"body":"body of hang-64"}',NULL);
INSERT INTO "http_execution_log" VALUES('t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','01a1f1a5-86a7-7598-b91e-12a2df02f57f','2026-11-19T02:31:59.407Z','2026-11-19T02:31:59.410Z','http://127.0.0.1:47999/ok/burst-2-63','POST','{"Authorization":"[redacted]"}','body of burst-2-63','200','{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:59 GMT","server":"BaseHTTP/0.6 Python/3.11.7"}','ok',NULL,'01a1f1a5-869b-7010-8a19-50b2ca9733fe','Finished',30000,'127.0.0.1:47999',NULL,'{"status":200,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:59 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":0}');
INSERT INTO "http_execution_log" VALUES('t1','01a1f1a5-86a4-7714-b339-0cf5d817c938','01a1f1a5-86b1-71d0-b583-7bf0c3c84cb9','2026-11-19T02:31:59.415Z','2026-11-19T02:31:59.419Z','http://127.0.0.1:47999/ok/burst-5-65','POST','{"Authorization":"[redacted]"}','body of burst-5-65','200','{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:59 GMT","server":"BaseHTTP/0.6 Python/3.11.7"}','ok',NULL,'01a1f1a5-86a4-7714-b339-0cf3e9354ac7','Finished',30000,'127.0.0.1:47999',NULL,'{"status":200,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:59 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":0}');
INSERT INTO "http_execution_log" VALUES('t1','01a1f1a5-86af-74cb-82ba-92d59b313f4f','01a1f1a5-86b7-7550-82ee-0710d1ad4563','2026-11-19T02:31:59.425Z',NULL,'http://127.0.0.1:47999/ok/burst-2-67','POST','{"Authorization":"[redacted]"}','body of burst-2-67',NULL,NULL,NULL,NULL,'01a1f1a5-86af-74cb-82ba-92d31f7cafc2','Attempted',30000,'127.0.0.1:47999','{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-2-67","headers":{"Authorization":"Bearer s3cret-of-burst-2-67"},"body":"body of burst-2-67"}',NULL);
CREATE TABLE outbox (
    -- Never used twice, so the order of ids is the order of insertion.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    -- The whole envelope, as it will be published.
    event_payload TEXT NOT NULL,
    created_at TEXT NOT NULL,
    published_at TEXT
) STRICT;
INSERT INTO "outbox" VALUES(1,'t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','ServiceCallSubmitted','{"id":"01a1f1a5-78f6-7434-bbfb-d958d4eb42d4","type":"ServiceCallSubmitted","tenantId":"t0","aggregateId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","timestampMs":1795055515894,"correlationId":"01a1f1a5-78f6-7434-bbfb-d955c5159ddd","causationId":"01a1f1a5-78f6-7434-bbfb-d956792459a4","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","name":"succeeded","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/succeeded","headers":{"Authorization":"[redacted]"},"body":"body of succeeded"},"submittedAt":"2026-11-19T02:31:55.894Z","tags":["first"]}}','2026-11-19T02:31:55.894Z','2026-11-19T02:31:55.910Z');
INSERT INTO "outbox" VALUES(2,'t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','ScheduleTimer','{"id":"01a1f1a5-78f6-7434-bbfb-d959912b0beb","type":"ScheduleTimer","tenantId":"t0","aggregateId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","timestampMs":1795055515894,"correlationId":"01a1f1a5-78f6-7434-bbfb-d955c5159ddd","causationId":"01a1f1a5-78f6-7434-bbfb-d956792459a4","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","dueAt":"2026-11-19T02:31:55.890Z"}}','2026-11-19T02:31:55.894Z','2026-11-19T02:31:55.910Z');
INSERT INTO "outbox" VALUES(3,'t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','ServiceCallScheduled','{"id":"01a1f1a5-78f6-7434-bbfb-d95ae6567ce2","type":"ServiceCallScheduled","tenantId":"t0","aggregateId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","timestampMs":1795055515894,"correlationId":"01a1f1a5-78f6-7434-bbfb-d955c5159ddd","causationId":"01a1f1a5-78f6-7434-bbfb-d956792459a4","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","dueAt":"2026-11-19T02:31:55.890Z"}}','2026-11-19T02:31:55.894Z','2026-11-19T02:31:55.910Z');
INSERT INTO "outbox" VALUES(4,'t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','ServiceCallSubmitted','{"id":"01a1f1a5-7904-750d-a9a5-9d5611ca2772","type":"ServiceCallSubmitted","tenantId":"t0","aggregateId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","timestampMs":1795055515908,"correlationId":"01a1f1a5-7903-75da-a3aa-41a9da578014","causationId":"01a1f1a5-7904-750d-a9a5-9d545fa47085","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","name":"answered-500","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/status/500","headers":{"Authorization":"[redacted]"},"body":"body of answered-500"},"submittedAt":"2026-11-19T02:31:55.908Z","tags":[]}}','2026-11-19T02:31:55.908Z','2026-11-19T02:31:55.946Z');
INSERT INTO "outbox" VALUES(5,'t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','ScheduleTimer','{"id":"01a1f1a5-7904-750d-a9a5-9d577d52a1bf","type":"ScheduleTimer","tenantId":"t0","aggregateId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","timestampMs":1795055515908,"correlationId":"01a1f1a5-7903-75da-a3aa-41a9da578014","causationId":"01a1f1a5-7904-750d-a9a5-9d545fa47085","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","dueAt":"2026-11-19T02:31:55.907Z"}}','2026-11-19T02:31:55.908Z','2026-11-19T02:31:55.946Z');
INSERT INTO "outbox" VALUES(6,'t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','ServiceCallScheduled','{"id":"01a1f1a5-7904-750d-a9a5-9d5822d0c52f","type":"ServiceCallScheduled","tenantId":"t0","aggregateId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","timestampMs":1795055515908,"correlationId":"01a1f1a5-7903-75da-a3aa-41a9da578014","causationId":"01a1f1a5-7904-750d-a9a5-9d545fa47085","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","dueAt":"2026-11-19T02:31:55.907Z"}}','2026-11-19T02:31:55.908Z','2026-11-19T02:31:55.946Z');
INSERT INTO "outbox" VALUES(7,'t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','ServiceCallRunning','{"id":"01a1f1a5-7906-7681-84f8-67909c5ac5c1","type":"ServiceCallRunning","tenantId":"t0","aggregateId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","timestampMs":1795055515910,"correlationId":"01a1f1a5-78f6-7434-bbfb-d955c5159ddd","causationId":"01a1f1a5-7906-7681-84f8-678ec6eeeac3","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","startedAt":"2026-11-19T02:31:55.910Z"}}','2026-11-19T02:31:55.910Z','2026-11-19T02:31:55.946Z');
INSERT INTO "outbox" VALUES(8,'t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','StartExecution','{"id":"01a1f1a5-7906-7681-84f8-678f0d167ccb","type":"StartExecution","tenantId":"t0","aggregateId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","timestampMs":1795055515910,"correlationId":"01a1f1a5-78f6-7434-bbfb-d955c5159ddd","causationId":"01a1f1a5-7906-7681-84f8-678ec6eeeac3","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/succeeded","headers":{"Authorization":"[redacted]"},"body":"body of succeeded"},"timeoutMs":30000}}','2026-11-19T02:31:55.910Z','2026-11-19T02:31:55.946Z');
INSERT INTO "outbox" VALUES(9,'t0','01a1f1a5-790e-7182-a050-589ea2b69d70','ServiceCallSubmitted','{"id":"01a1f1a5-790e-7182-a050-589f7ef2d746","type":"ServiceCallSubmitted","tenantId":"t0","aggregateId":"01a1f1a5-790e-7182-a050-589ea2b69d70","timestampMs":1795055515918,"correlationId":"01a1f1a5-790e-7182-a050-589c2dbfca32","causationId":"01a1f1a5-790e-7182-a050-589d7f358290","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-790e-7182-a050-589ea2b69d70","name":"of-2099","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/of-2099","headers":{"Authorization":"[redacted]"},"body":"body of of-2099"},"submittedAt":"2026-11-19T02:31:55.918Z","tags":["far"]}}','2026-11-19T02:31:55.918Z','2026-11-19T02:31:55.979Z');
INSERT INTO "outbox" VALUES(10,'t0','01a1f1a5-790e-7182-a050-589ea2b69d70','ScheduleTimer','{"id":"01a1f1a5-790e-7182-a050-58a0a676592b","type":"ScheduleTimer","tenantId":"t0","aggregateId":"01a1f1a5-790e-7182-a050-589ea2b69d70","timestampMs":1795055515918,"correlationId":"01a1f1a5-790e-7182-a050-589c2dbfca32","causationId":"01a1f1a5-790e-7182-a050-589d7f358290","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-790e-7182-a050-589ea2b69d70","dueAt":"2099-12-24T18:00:00.000Z"}}','2026-11-19T02:31:55.918Z','2026-11-19T02:31:55.979Z');
INSERT INTO "outbox" VALUES(11,'t0','01a1f1a5-790e-7182-a050-589ea2b69d70','ServiceCallScheduled','{"id":"01a1f1a5-790e-7182-a050-58a16daa4e11","type":"ServiceCallScheduled","tenantId":"t0","aggregateId":"01a1f1a5-790e-7182-a050-589ea2b69d70","timestampMs":1795055515918,"correlationId":"01a1f1a5-790e-7182-a050-589c2dbfca32","causationId":"01a1f1a5-790e-7182-a050-589d7f358290","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-790e-7182-a050-589ea2b69d70","dueAt":"2099-12-24T18:00:00.000Z"}}','2026-11-19T02:31:55.918Z','2026-11-19T02:31:55.979Z');
INSERT INTO "outbox" VALUES(12,'t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','ServiceCallRunning','{"id":"01a1f1a5-791f-700c-9987-14da6e465c55","type":"ServiceCallRunning","tenantId":"t0","aggregateId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","timestampMs":1795055515935,"correlationId":"01a1f1a5-7903-75da-a3aa-41a9da578014","causationId":"01a1f1a5-791f-700c-9987-14d886ccf94b","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","startedAt":"2026-11-19T02:31:55.935Z"}}','2026-11-19T02:31:55.935Z','2026-11-19T02:31:55.979Z');
INSERT INTO "outbox" VALUES(13,'t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','StartExecution','{"id":"01a1f1a5-791f-700c-9987-14d9f72b1f36","type":"StartExecution","tenantId":"t0","aggregateId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","timestampMs":1795055515935,"correlationId":"01a1f1a5-7903-75da-a3aa-41a9da578014","causationId":"01a1f1a5-791f-700c-9987-14d886ccf94b","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/status/500","headers":{"Authorization":"[redacted]"},"body":"body of answered-500"},"timeoutMs":30000}}','2026-11-19T02:31:55.935Z','2026-11-19T02:31:55.979Z');
INSERT INTO "outbox" VALUES(14,'t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','ExecutionStarted','{"id":"01a1f1a5-792a-7315-8069-181883e30b65","type":"ExecutionStarted","tenantId":"t0","aggregateId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","timestampMs":1795055515946,"correlationId":"01a1f1a5-78f6-7434-bbfb-d955c5159ddd","causationId":"01a1f1a5-7906-7681-84f8-678f0d167ccb","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","executionId":"01a1f1a5-7906-7681-84f8-678f0d167ccb","startedAt":"2026-11-19T02:31:55.946Z"}}','2026-11-19T02:31:55.946Z','2026-11-19T02:31:55.979Z');
INSERT INTO "outbox" VALUES(15,'t1','01a1f1a5-7931-776a-b438-425be3bcd37a','ServiceCallSubmitted','{"id":"01a1f1a5-7931-776a-b438-425c94480026","type":"ServiceCallSubmitted","tenantId":"t1","aggregateId":"01a1f1a5-7931-776a-b438-425be3bcd37a","timestampMs":1795055515953,"correlationId":"01a1f1a5-7931-776a-b438-42594f5ceddd","causationId":"01a1f1a5-7931-776a-b438-425aa9e5be04","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-7931-776a-b438-425be3bcd37a","name":"deleted","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/deleted","headers":{"Authorization":"[redacted]"},"body":"body of deleted"},"submittedAt":"2026-11-19T02:31:55.953Z","tags":[]}}','2026-11-19T02:31:55.953Z','2026-11-19T02:31:55.989Z');
INSERT INTO "outbox" VALUES(16,'t1','01a1f1a5-7931-776a-b438-425be3bcd37a','ScheduleTimer','{"id":"01a1f1a5-7931-776a-b438-425d2263bdbd","type":"ScheduleTimer","tenantId":"t1","aggregateId":"01a1f1a5-7931-776a-b438-425be3bcd37a","timestampMs":1795055515953,"correlationId":"01a1f1a5-7931-776a-b438-42594f5ceddd","causationId":"01a1f1a5-7931-776a-b438-425aa9e5be04","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-7931-776a-b438-425be3bcd37a","dueAt":"2099-12-24T18:00:00.000Z"}}','2026-11-19T02:31:55.953Z','2026-11-19T02:31:55.989Z');
INSERT INTO "outbox" VALUES(17,'t1','01a1f1a5-7931-776a-b438-425be3bcd37a','ServiceCallScheduled','{"id":"01a1f1a5-7931-776a-b438-425e9e80c756","type":"ServiceCallScheduled","tenantId":"t1","aggregateId":"01a1f1a5-7931-776a-b438-425be3bcd37a","timestampMs":1795055515953,"correlationId":"01a1f1a5-7931-776a-b438-42594f5ceddd","causationId":"01a1f1a5-7931-776a-b438-425aa9e5be04","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-7931-776a-b438-425be3bcd37a","dueAt":"2099-12-24T18:00:00.000Z"}}','2026-11-19T02:31:55.953Z','2026-11-19T02:31:55.989Z');
INSERT INTO "outbox" VALUES(18,'t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','ExecutionSucceeded','{"id":"01a1f1a5-793b-73b9-81fb-84e7edbb1d63","type":"ExecutionSucceeded","tenantId":"t0","aggregateId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","timestampMs":1795055515963,"correlationId":"01a1f1a5-78f6-7434-bbfb-d955c5159ddd","causationId":"01a1f1a5-7906-7681-84f8-678f0d167ccb","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","executionId":"01a1f1a5-7906-7681-84f8-678f0d167ccb","finishedAt":"2026-11-19T02:31:55.963Z","responseMeta":{"status":200,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:55 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":6}}}','2026-11-19T02:31:55.963Z','2026-11-19T02:31:55.989Z');
INSERT INTO "outbox" VALUES(19,'t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','ExecutionStarted','{"id":"01a1f1a5-794a-7768-8ff8-54d555ef1a23","type":"ExecutionStarted","tenantId":"t0","aggregateId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","timestampMs":1795055515978,"correlationId":"01a1f1a5-7903-75da-a3aa-41a9da578014","causationId":"01a1f1a5-791f-700c-9987-14d9f72b1f36","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","executionId":"01a1f1a5-791f-700c-9987-14d9f72b1f36","startedAt":"2026-11-19T02:31:55.978Z"}}','2026-11-19T02:31:55.978Z','2026-11-19T02:31:55.989Z');
INSERT INTO "outbox" VALUES(20,'t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','ServiceCallSucceeded','{"id":"01a1f1a5-7954-77b0-ac22-058a3fd135e0","type":"ServiceCallSucceeded","tenantId":"t0","aggregateId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","timestampMs":1795055515988,"correlationId":"01a1f1a5-78f6-7434-bbfb-d955c5159ddd","causationId":"01a1f1a5-793b-73b9-81fb-84e7edbb1d63","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-78f6-7434-bbfb-d957a57ee4c9","finishedAt":"2026-11-19T02:31:55.963Z","responseMeta":{"status":200,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:55 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":6}}}','2026-11-19T02:31:55.988Z','2026-11-19T02:31:55.990Z');
INSERT INTO "outbox" VALUES(21,'t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','ExecutionFailed','{"id":"01a1f1a5-7954-77b0-ac22-058b9b9a1b39","type":"ExecutionFailed","tenantId":"t0","aggregateId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","timestampMs":1795055515988,"correlationId":"01a1f1a5-7903-75da-a3aa-41a9da578014","causationId":"01a1f1a5-791f-700c-9987-14d9f72b1f36","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","executionId":"01a1f1a5-791f-700c-9987-14d9f72b1f36","finishedAt":"2026-11-19T02:31:55.988Z","errorMeta":{"kind":"HttpStatus","message":"the target answered 500","details":{"status":500,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:55 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":1},"latencyMs":1}}}','2026-11-19T02:31:55.988Z','2026-11-19T02:31:55.990Z');
INSERT INTO "outbox" VALUES(22,'t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','ServiceCallFailed','{"id":"01a1f1a5-7955-76b3-9912-0600579cf518","type":"ServiceCallFailed","tenantId":"t0","aggregateId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","timestampMs":1795055515989,"correlationId":"01a1f1a5-7903-75da-a3aa-41a9da578014","causationId":"01a1f1a5-7954-77b0-ac22-058b9b9a1b39","payload":{"tenantId":"t0","serviceCallId":"01a1f1a5-7904-750d-a9a5-9d551a4b132d","finishedAt":"2026-11-19T02:31:55.988Z","errorMeta":{"kind":"HttpStatus","message":"the target answered 500","details":{"status":500,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:55 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":1},"latencyMs":1}}}','2026-11-19T02:31:55.989Z','2026-11-19T02:31:55.990Z');
INSERT INTO "outbox" VALUES(23,'t1','01a1f1a5-7931-776a-b438-425be3bcd37a','ServiceCallDeleted','{"id":"01a1f1a5-7d30-75fa-ad0f-f7c79cac56fc","type":"ServiceCallDeleted","tenantId":"t1","aggregateId":"01a1f1a5-7931-776a-b438-425be3bcd37a","timestampMs":1795055516976,"correlationId":"01a1f1a5-7931-776a-b438-42594f5ceddd","causationId":"01a1f1a5-7d30-75fa-ad0f-f7c6a70bf636","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-7931-776a-b438-425be3bcd37a","deletedAt":"2026-11-19T02:31:56.976Z"}}','2026-11-19T02:31:56.976Z','2026-11-19T02:31:56.986Z');
INSERT INTO "outbox" VALUES(24,'t2','01a1f1a5-7d33-7439-8029-b5a22ab75acd','ServiceCallSubmitted','{"id":"01a1f1a5-7d33-7439-8029-b5a3e31e3be0","type":"ServiceCallSubmitted","tenantId":"t2","aggregateId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","timestampMs":1795055516979,"correlationId":"01a1f1a5-7d33-7439-8029-b5a01d8fb0e6","causationId":"01a1f1a5-7d33-7439-8029-b5a172b10ef8","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","name":"hang-0","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/hang/0","headers":{"Authorization":"[redacted]"},"body":"body of hang-0"},"submittedAt":"2026-11-19T02:31:56.979Z","tags":[]}}','2026-11-19T02:31:56.979Z','2026-11-19T02:31:57.006Z');
INSERT INTO "outbox" VALUES(25,'t2','01a1f1a5-7d33-7439-8029-b5a22ab75acd','ScheduleTimer','{"id":"01a1f1a5-7d33-7439-8029-b5a40c92f2a6","type":"ScheduleTimer","tenantId":"t2","aggregateId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","timestampMs":1795055516979,"correlationId":"01a1f1a5-7d33-7439-8029-b5a01d8fb0e6","causationId":"01a1f1a5-7d33-7439-8029-b5a172b10ef8","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","dueAt":"2026-11-19T02:31:56.979Z"}}','2026-11-19T02:31:56.979Z','2026-11-19T02:31:57.006Z');
INSERT INTO "outbox" VALUES(26,'t2','01a1f1a5-7d33-7439-8029-b5a22ab75acd','ServiceCallScheduled','{"id":"01a1f1a5-7d33-7439-8029-b5a5b522d61f","type":"ServiceCallScheduled","tenantId":"t2","aggregateId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","timestampMs":1795055516979,"correlationId":"01a1f1a5-7d33-7439-8029-b5a01d8fb0e6","causationId":"01a1f1a5-7d33-7439-8029-b5a172b10ef8","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","dueAt":"2026-11-19T02:31:56.979Z"}}','2026-11-19T02:31:56.979Z','2026-11-19T02:31:57.006Z');
INSERT INTO "outbox" VALUES(30,'t2','01a1f1a5-7d33-7439-8029-b5a22ab75acd','ServiceCallRunning','{"id":"01a1f1a5-7d52-777e-8428-8e129453c4ea","type":"ServiceCallRunning","tenantId":"t2","aggregateId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","timestampMs":1795055517010,"correlationId":"01a1f1a5-7d33-7439-8029-b5a01d8fb0e6","causationId":"01a1f1a5-7d4f-70c1-b8f7-4fcbae502837","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","startedAt":"2026-11-19T02:31:57.010Z"}}','2026-11-19T02:31:57.010Z','2026-11-19T02:31:57.054Z');
INSERT INTO "outbox" VALUES(31,'t2','01a1f1a5-7d33-7439-8029-b5a22ab75acd','StartExecution','{"id":"01a1f1a5-7d52-777e-8428-8e11595cd781","type":"StartExecution","tenantId":"t2","aggregateId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","timestampMs":1795055517010,"correlationId":"01a1f1a5-7d33-7439-8029-b5a01d8fb0e6","causationId":"01a1f1a5-7d4f-70c1-b8f7-4fcbae502837","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/hang/0","headers":{"Authorization":"[redacted]"},"body":"body of hang-0"},"timeoutMs":30000}}','2026-11-19T02:31:57.010Z','2026-11-19T02:31:57.054Z');
INSERT INTO "outbox" VALUES(46,'t2','01a1f1a5-7d33-7439-8029-b5a22ab75acd','ExecutionStarted','{"id":"01a1f1a5-7d7e-70d2-80d3-5b8168c25749","type":"ExecutionStarted","tenantId":"t2","aggregateId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","timestampMs":1795055517054,"correlationId":"01a1f1a5-7d33-7439-8029-b5a01d8fb0e6","causationId":"01a1f1a5-7d52-777e-8428-8e11595cd781","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7d33-7439-8029-b5a22ab75acd","executionId":"01a1f1a5-7d52-777e-8428-8e11595cd781","startedAt":"2026-11-19T02:31:57.054Z"}}','2026-11-19T02:31:57.054Z','2026-11-19T02:31:57.063Z');
INSERT INTO "outbox" VALUES(397,'t2','01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c','ServiceCallSubmitted','{"id":"01a1f1a5-7f4f-7709-8dab-cf2ea24432af","type":"ServiceCallSubmitted","tenantId":"t2","aggregateId":"01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c","timestampMs":1795055517519,"correlationId":"01a1f1a5-7f4f-7709-8dab-cf2b4e5b4bee","causationId":"01a1f1a5-7f4f-7709-8dab-cf2c1c7242ec","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c","name":"hang-64","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/hang/64","headers":{"Authorization":"[redacted]"},"body":"body of hang-64"},"submittedAt":"2026-11-19T02:31:57.519Z","tags":[]}}','2026-11-19T02:31:57.519Z','2026-11-19T02:31:57.551Z');
INSERT INTO "outbox" VALUES(398,'t2','01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c','ScheduleTimer','{"id":"01a1f1a5-7f4f-7709-8dab-cf2f42e98e0d","type":"ScheduleTimer","tenantId":"t2","aggregateId":"01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c","timestampMs":1795055517519,"correlationId":"01a1f1a5-7f4f-7709-8dab-cf2b4e5b4bee","causationId":"01a1f1a5-7f4f-7709-8dab-cf2c1c7242ec","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c","dueAt":"2026-11-19T02:31:57.518Z"}}','2026-11-19T02:31:57.519Z','2026-11-19T02:31:57.551Z');
INSERT INTO "outbox" VALUES(399,'t2','01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c','ServiceCallScheduled','{"id":"01a1f1a5-7f4f-7709-8dab-cf3067631bca","type":"ServiceCallScheduled","tenantId":"t2","aggregateId":"01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c","timestampMs":1795055517519,"correlationId":"01a1f1a5-7f4f-7709-8dab-cf2b4e5b4bee","causationId":"01a1f1a5-7f4f-7709-8dab-cf2c1c7242ec","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c","dueAt":"2026-11-19T02:31:57.518Z"}}','2026-11-19T02:31:57.519Z','2026-11-19T02:31:57.551Z');
INSERT INTO "outbox" VALUES(416,'t2','01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c','ServiceCallRunning','{"id":"01a1f1a5-7f6f-77a3-a52a-4f2089498252","type":"ServiceCallRunning","tenantId":"t2","aggregateId":"01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c","timestampMs":1795055517551,"correlationId":"01a1f1a5-7f4f-7709-8dab-cf2b4e5b4bee","causationId":"01a1f1a5-7f6f-77a3-a52a-4f1cc88738d5","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c","startedAt":"2026-11-19T02:31:57.551Z"}}','2026-11-19T02:31:57.551Z','2026-11-19T02:31:57.599Z');
INSERT INTO "outbox" VALUES(417,'t2','01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c','StartExecution','{"id":"01a1f1a5-7f6f-77a3-a52a-4f1f78cf8d40","type":"StartExecution","tenantId":"t2","aggregateId":"01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c","timestampMs":1795055517551,"correlationId":"01a1f1a5-7f4f-7709-8dab-cf2b4e5b4bee","causationId":"01a1f1a5-7f6f-77a3-a52a-4f1cc88738d5","payload":{"tenantId":"t2","serviceCallId":"01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/hang/64","headers":{"Authorization":"[redacted]"},"body":"body of hang-64"},"timeoutMs":30000}}','2026-11-19T02:31:57.551Z','2026-11-19T02:31:57.599Z');
INSERT INTO "outbox" VALUES(486,'t1','01a1f1a5-801a-70c7-b679-be36b5372ef0','ServiceCallSubmitted','{"id":"01a1f1a5-801a-70c7-b679-be3760b2f667","type":"ServiceCallSubmitted","tenantId":"t1","aggregateId":"01a1f1a5-801a-70c7-b679-be36b5372ef0","timestampMs":1795055517722,"correlationId":"01a1f1a5-801a-70c7-b679-be30c0dde27a","causationId":"01a1f1a5-801a-70c7-b679-be354608d374","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-801a-70c7-b679-be36b5372ef0","name":"soon-0","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/soon-0","headers":{"Authorization":"[redacted]"},"body":"body of soon-0"},"submittedAt":"2026-11-19T02:31:57.722Z","tags":[]}}','2026-11-19T02:31:57.722Z','2026-11-19T02:31:57.760Z');
INSERT INTO "outbox" VALUES(487,'t1','01a1f1a5-801a-70c7-b679-be36b5372ef0','ScheduleTimer','{"id":"01a1f1a5-801a-70c7-b679-be387aa475ef","type":"ScheduleTimer","tenantId":"t1","aggregateId":"01a1f1a5-801a-70c7-b679-be36b5372ef0","timestampMs":1795055517722,"correlationId":"01a1f1a5-801a-70c7-b679-be30c0dde27a","causationId":"01a1f1a5-801a-70c7-b679-be354608d374","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-801a-70c7-b679-be36b5372ef0","dueAt":"2026-11-19T02:32:00.721Z"}}','2026-11-19T02:31:57.722Z','2026-11-19T02:31:57.760Z');
INSERT INTO "outbox" VALUES(488,'t1','01a1f1a5-801a-70c7-b679-be36b5372ef0','ServiceCallScheduled','{"id":"01a1f1a5-801a-70c7-b679-be39de7c9e5b","type":"ServiceCallScheduled","tenantId":"t1","aggregateId":"01a1f1a5-801a-70c7-b679-be36b5372ef0","timestampMs":1795055517722,"correlationId":"01a1f1a5-801a-70c7-b679-be30c0dde27a","causationId":"01a1f1a5-801a-70c7-b679-be354608d374","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-801a-70c7-b679-be36b5372ef0","dueAt":"2026-11-19T02:32:00.721Z"}}','2026-11-19T02:31:57.722Z','2026-11-19T02:31:57.760Z');
INSERT INTO "outbox" VALUES(2589,'t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','ServiceCallSubmitted','{"id":"01a1f1a5-869b-7010-8a19-50b50188d742","type":"ServiceCallSubmitted","tenantId":"t1","aggregateId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","timestampMs":1795055519387,"correlationId":"01a1f1a5-869b-7010-8a19-50b2ca9733fe","causationId":"01a1f1a5-869b-7010-8a19-50b3cb7bbb08","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","name":"burst-2-63","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-2-63","headers":{"Authorization":"[redacted]"},"body":"body of burst-2-63"},"submittedAt":"2026-11-19T02:31:59.387Z","tags":[]}}','2026-11-19T02:31:59.387Z','2026-11-19T02:31:59.400Z');
INSERT INTO "outbox" VALUES(2590,'t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','ScheduleTimer','{"id":"01a1f1a5-869b-7010-8a19-50b65955dd43","type":"ScheduleTimer","tenantId":"t1","aggregateId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","timestampMs":1795055519387,"correlationId":"01a1f1a5-869b-7010-8a19-50b2ca9733fe","causationId":"01a1f1a5-869b-7010-8a19-50b3cb7bbb08","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","dueAt":"2026-11-19T02:31:59.386Z"}}','2026-11-19T02:31:59.387Z','2026-11-19T02:31:59.400Z');
INSERT INTO "outbox" VALUES(2591,'t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','ServiceCallScheduled','{"id":"01a1f1a5-869b-7010-8a19-50b70e0855c1","type":"ServiceCallScheduled","tenantId":"t1","aggregateId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","timestampMs":1795055519387,"correlationId":"01a1f1a5-869b-7010-8a19-50b2ca9733fe","causationId":"01a1f1a5-869b-7010-8a19-50b3cb7bbb08","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","dueAt":"2026-11-19T02:31:59.386Z"}}','2026-11-19T02:31:59.387Z','2026-11-19T02:31:59.400Z');
INSERT INTO "outbox" VALUES(2648,'t1','01a1f1a5-86a4-7714-b339-0cf5d817c938','ServiceCallSubmitted','{"id":"01a1f1a5-86a4-7714-b339-0cf62765215e","type":"ServiceCallSubmitted","tenantId":"t1","aggregateId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","timestampMs":1795055519396,"correlationId":"01a1f1a5-86a4-7714-b339-0cf3e9354ac7","causationId":"01a1f1a5-86a4-7714-b339-0cf4eef90e8d","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","name":"burst-5-65","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-5-65","headers":{"Authorization":"[redacted]"},"body":"body of burst-5-65"},"submittedAt":"2026-11-19T02:31:59.396Z","tags":[]}}','2026-11-19T02:31:59.396Z','2026-11-19T02:31:59.408Z');
INSERT INTO "outbox" VALUES(2649,'t1','01a1f1a5-86a4-7714-b339-0cf5d817c938','ScheduleTimer','{"id":"01a1f1a5-86a4-7714-b339-0cf7411be5c9","type":"ScheduleTimer","tenantId":"t1","aggregateId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","timestampMs":1795055519396,"correlationId":"01a1f1a5-86a4-7714-b339-0cf3e9354ac7","causationId":"01a1f1a5-86a4-7714-b339-0cf4eef90e8d","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","dueAt":"2026-11-19T02:31:59.395Z"}}','2026-11-19T02:31:59.396Z','2026-11-19T02:31:59.408Z');
INSERT INTO "outbox" VALUES(2650,'t1','01a1f1a5-86a4-7714-b339-0cf5d817c938','ServiceCallScheduled','{"id":"01a1f1a5-86a4-7714-b339-0cf851455d54","type":"ServiceCallScheduled","tenantId":"t1","aggregateId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","timestampMs":1795055519396,"correlationId":"01a1f1a5-86a4-7714-b339-0cf3e9354ac7","causationId":"01a1f1a5-86a4-7714-b339-0cf4eef90e8d","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","dueAt":"2026-11-19T02:31:59.395Z"}}','2026-11-19T02:31:59.396Z','2026-11-19T02:31:59.408Z');
INSERT INTO "outbox" VALUES(2672,'t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','ServiceCallRunning','{"id":"01a1f1a5-86a7-7598-b91e-12a37373a39a","type":"ServiceCallRunning","tenantId":"t1","aggregateId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","timestampMs":1795055519399,"correlationId":"01a1f1a5-869b-7010-8a19-50b2ca9733fe","causationId":"01a1f1a5-86a7-7598-b91e-129a1c587d31","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","startedAt":"2026-11-19T02:31:59.399Z"}}','2026-11-19T02:31:59.399Z','2026-11-19T02:31:59.408Z');
INSERT INTO "outbox" VALUES(2673,'t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','StartExecution','{"id":"01a1f1a5-86a7-7598-b91e-12a2df02f57f","type":"StartExecution","tenantId":"t1","aggregateId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","timestampMs":1795055519399,"correlationId":"01a1f1a5-869b-7010-8a19-50b2ca9733fe","causationId":"01a1f1a5-86a7-7598-b91e-129a1c587d31","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-2-63","headers":{"Authorization":"[redacted]"},"body":"body of burst-2-63"},"timeoutMs":30000}}','2026-11-19T02:31:59.399Z','2026-11-19T02:31:59.408Z');
INSERT INTO "outbox" VALUES(2710,'t1','01a1f1a5-86af-74cb-82ba-92d59b313f4f','ServiceCallSubmitted','{"id":"01a1f1a5-86af-74cb-82ba-92d6aa4584ba","type":"ServiceCallSubmitted","tenantId":"t1","aggregateId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","timestampMs":1795055519407,"correlationId":"01a1f1a5-86af-74cb-82ba-92d31f7cafc2","causationId":"01a1f1a5-86af-74cb-82ba-92d4d9bc74c2","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","name":"burst-2-67","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-2-67","headers":{"Authorization":"[redacted]"},"body":"body of burst-2-67"},"submittedAt":"2026-11-19T02:31:59.407Z","tags":[]}}','2026-11-19T02:31:59.407Z','2026-11-19T02:31:59.417Z');
INSERT INTO "outbox" VALUES(2711,'t1','01a1f1a5-86af-74cb-82ba-92d59b313f4f','ScheduleTimer','{"id":"01a1f1a5-86af-74cb-82ba-92d76a64e533","type":"ScheduleTimer","tenantId":"t1","aggregateId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","timestampMs":1795055519407,"correlationId":"01a1f1a5-86af-74cb-82ba-92d31f7cafc2","causationId":"01a1f1a5-86af-74cb-82ba-92d4d9bc74c2","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","dueAt":"2026-11-19T02:31:59.406Z"}}','2026-11-19T02:31:59.407Z','2026-11-19T02:31:59.417Z');
INSERT INTO "outbox" VALUES(2712,'t1','01a1f1a5-86af-74cb-82ba-92d59b313f4f','ServiceCallScheduled','{"id":"01a1f1a5-86af-74cb-82ba-92d835a06139","type":"ServiceCallScheduled","tenantId":"t1","aggregateId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","timestampMs":1795055519407,"correlationId":"01a1f1a5-86af-74cb-82ba-92d31f7cafc2","causationId":"01a1f1a5-86af-74cb-82ba-92d4d9bc74c2","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","dueAt":"2026-11-19T02:31:59.406Z"}}','2026-11-19T02:31:59.407Z','2026-11-19T02:31:59.417Z');
INSERT INTO "outbox" VALUES(2730,'t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','ExecutionStarted','{"id":"01a1f1a5-86af-74cb-82ba-92f963d1fe61","type":"ExecutionStarted","tenantId":"t1","aggregateId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","timestampMs":1795055519407,"correlationId":"01a1f1a5-869b-7010-8a19-50b2ca9733fe","causationId":"01a1f1a5-86a7-7598-b91e-12a2df02f57f","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","executionId":"01a1f1a5-86a7-7598-b91e-12a2df02f57f","startedAt":"2026-11-19T02:31:59.407Z"}}','2026-11-19T02:31:59.407Z','2026-11-19T02:31:59.417Z');
INSERT INTO "outbox" VALUES(2734,'t1','01a1f1a5-86a4-7714-b339-0cf5d817c938','ServiceCallRunning','{"id":"01a1f1a5-86b1-71d0-b583-7bf11ba8ccc0","type":"ServiceCallRunning","tenantId":"t1","aggregateId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","timestampMs":1795055519409,"correlationId":"01a1f1a5-86a4-7714-b339-0cf3e9354ac7","causationId":"01a1f1a5-86b0-7702-9eea-16e6862250b2","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","startedAt":"2026-11-19T02:31:59.409Z"}}','2026-11-19T02:31:59.409Z','2026-11-19T02:31:59.417Z');
INSERT INTO "outbox" VALUES(2735,'t1','01a1f1a5-86a4-7714-b339-0cf5d817c938','StartExecution','{"id":"01a1f1a5-86b1-71d0-b583-7bf0c3c84cb9","type":"StartExecution","tenantId":"t1","aggregateId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","timestampMs":1795055519409,"correlationId":"01a1f1a5-86a4-7714-b339-0cf3e9354ac7","causationId":"01a1f1a5-86b0-7702-9eea-16e6862250b2","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-5-65","headers":{"Authorization":"[redacted]"},"body":"body of burst-5-65"},"timeoutMs":30000}}','2026-11-19T02:31:59.409Z','2026-11-19T02:31:59.417Z');
INSERT INTO "outbox" VALUES(2748,'t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','ExecutionSucceeded','{"id":"01a1f1a5-86b2-7056-939e-cb8719f175fc","type":"ExecutionSucceeded","tenantId":"t1","aggregateId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","timestampMs":1795055519410,"correlationId":"01a1f1a5-869b-7010-8a19-50b2ca9733fe","causationId":"01a1f1a5-86a7-7598-b91e-12a2df02f57f","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","executionId":"01a1f1a5-86a7-7598-b91e-12a2df02f57f","finishedAt":"2026-11-19T02:31:59.410Z","responseMeta":{"status":200,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:59 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":0}}}','2026-11-19T02:31:59.410Z','2026-11-19T02:31:59.426Z');
INSERT INTO "outbox" VALUES(2761,'t1','01a1f1a5-86b4-7493-995f-e29e8d7af8ad','ServiceCallSubmitted','{"id":"01a1f1a5-86b4-7493-995f-e29fc39f1e68","type":"ServiceCallSubmitted","tenantId":"t1","aggregateId":"01a1f1a5-86b4-7493-995f-e29e8d7af8ad","timestampMs":1795055519412,"correlationId":"01a1f1a5-86b4-7493-995f-e29c3c13218d","causationId":"01a1f1a5-86b4-7493-995f-e29dca323927","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86b4-7493-995f-e29e8d7af8ad","name":"burst-0-71","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-0-71","headers":{"Authorization":"[redacted]"},"body":"body of burst-0-71"},"submittedAt":"2026-11-19T02:31:59.412Z","tags":[]}}','2026-11-19T02:31:59.412Z','2026-11-19T02:31:59.426Z');
INSERT INTO "outbox" VALUES(2762,'t1','01a1f1a5-86b4-7493-995f-e29e8d7af8ad','ScheduleTimer','{"id":"01a1f1a5-86b4-7493-995f-e2a0edc30958","type":"ScheduleTimer","tenantId":"t1","aggregateId":"01a1f1a5-86b4-7493-995f-e29e8d7af8ad","timestampMs":1795055519412,"correlationId":"01a1f1a5-86b4-7493-995f-e29c3c13218d","causationId":"01a1f1a5-86b4-7493-995f-e29dca323927","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86b4-7493-995f-e29e8d7af8ad","dueAt":"2026-11-19T02:31:59.411Z"}}','2026-11-19T02:31:59.412Z','2026-11-19T02:31:59.426Z');
INSERT INTO "outbox" VALUES(2763,'t1','01a1f1a5-86b4-7493-995f-e29e8d7af8ad','ServiceCallScheduled','{"id":"01a1f1a5-86b4-7493-995f-e2a1059e7487","type":"ServiceCallScheduled","tenantId":"t1","aggregateId":"01a1f1a5-86b4-7493-995f-e29e8d7af8ad","timestampMs":1795055519412,"correlationId":"01a1f1a5-86b4-7493-995f-e29c3c13218d","causationId":"01a1f1a5-86b4-7493-995f-e29dca323927","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86b4-7493-995f-e29e8d7af8ad","dueAt":"2026-11-19T02:31:59.411Z"}}','2026-11-19T02:31:59.412Z','2026-11-19T02:31:59.426Z');
INSERT INTO "outbox" VALUES(2777,'t1','01a1f1a5-86a4-7714-b339-0cf5d817c938','ExecutionStarted','{"id":"01a1f1a5-86b7-7550-82ee-07061b213782","type":"ExecutionStarted","tenantId":"t1","aggregateId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","timestampMs":1795055519415,"correlationId":"01a1f1a5-86a4-7714-b339-0cf3e9354ac7","causationId":"01a1f1a5-86b1-71d0-b583-7bf0c3c84cb9","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","executionId":"01a1f1a5-86b1-71d0-b583-7bf0c3c84cb9","startedAt":"2026-11-19T02:31:59.415Z"}}','2026-11-19T02:31:59.415Z','2026-11-19T02:31:59.426Z');
INSERT INTO "outbox" VALUES(2783,'t1','01a1f1a5-86af-74cb-82ba-92d59b313f4f','ServiceCallRunning','{"id":"01a1f1a5-86b7-7550-82ee-07116b267a26","type":"ServiceCallRunning","tenantId":"t1","aggregateId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","timestampMs":1795055519415,"correlationId":"01a1f1a5-86af-74cb-82ba-92d31f7cafc2","causationId":"01a1f1a5-86b7-7550-82ee-070cf3c0d282","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","startedAt":"2026-11-19T02:31:59.415Z"}}','2026-11-19T02:31:59.415Z','2026-11-19T02:31:59.426Z');
INSERT INTO "outbox" VALUES(2784,'t1','01a1f1a5-86af-74cb-82ba-92d59b313f4f','StartExecution','{"id":"01a1f1a5-86b7-7550-82ee-0710d1ad4563","type":"StartExecution","tenantId":"t1","aggregateId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","timestampMs":1795055519415,"correlationId":"01a1f1a5-86af-74cb-82ba-92d31f7cafc2","causationId":"01a1f1a5-86b7-7550-82ee-070cf3c0d282","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-2-67","headers":{"Authorization":"[redacted]"},"body":"body of burst-2-67"},"timeoutMs":30000}}','2026-11-19T02:31:59.415Z','2026-11-19T02:31:59.426Z');
INSERT INTO "outbox" VALUES(2800,'t1','01a1f1a5-86b9-74c7-a5ac-f14879396481','ServiceCallSubmitted','{"id":"01a1f1a5-86b9-74c7-a5ac-f14953ed912e","type":"ServiceCallSubmitted","tenantId":"t1","aggregateId":"01a1f1a5-86b9-74c7-a5ac-f14879396481","timestampMs":1795055519417,"correlationId":"01a1f1a5-86b9-74c7-a5ac-f1462508f757","causationId":"01a1f1a5-86b9-74c7-a5ac-f147411808c1","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86b9-74c7-a5ac-f14879396481","name":"burst-3-73","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-3-73","headers":{"Authorization":"[redacted]"},"body":"body of burst-3-73"},"submittedAt":"2026-11-19T02:31:59.417Z","tags":[]}}','2026-11-19T02:31:59.417Z',NULL);
INSERT INTO "outbox" VALUES(2801,'t1','01a1f1a5-86b9-74c7-a5ac-f14879396481','ScheduleTimer','{"id":"01a1f1a5-86b9-74c7-a5ac-f14a00e5fe36","type":"ScheduleTimer","tenantId":"t1","aggregateId":"01a1f1a5-86b9-74c7-a5ac-f14879396481","timestampMs":1795055519417,"correlationId":"01a1f1a5-86b9-74c7-a5ac-f1462508f757","causationId":"01a1f1a5-86b9-74c7-a5ac-f147411808c1","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86b9-74c7-a5ac-f14879396481","dueAt":"2026-11-19T02:31:59.417Z"}}','2026-11-19T02:31:59.417Z',NULL);
INSERT INTO "outbox" VALUES(2802,'t1','01a1f1a5-86b9-74c7-a5ac-f14879396481','ServiceCallScheduled','{"id":"01a1f1a5-86b9-74c7-a5ac-f14bdeae8bd9","type":"ServiceCallScheduled","tenantId":"t1","aggregateId":"01a1f1a5-86b9-74c7-a5ac-f14879396481","timestampMs":1795055519417,"correlationId":"01a1f1a5-86b9-74c7-a5ac-f1462508f757","causationId":"01a1f1a5-86b9-74c7-a5ac-f147411808c1","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86b9-74c7-a5ac-f14879396481","dueAt":"2026-11-19T02:31:59.417Z"}}','2026-11-19T02:31:59.417Z',NULL);
INSERT INTO "outbox" VALUES(2810,'t1','01a1f1a5-86a4-7714-b339-0cf5d817c938','ExecutionSucceeded','{"id":"01a1f1a5-86bb-75c4-91b8-437efc4410f9","type":"ExecutionSucceeded","tenantId":"t1","aggregateId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","timestampMs":1795055519419,"correlationId":"01a1f1a5-86a4-7714-b339-0cf3e9354ac7","causationId":"01a1f1a5-86b1-71d0-b583-7bf0c3c84cb9","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86a4-7714-b339-0cf5d817c938","executionId":"01a1f1a5-86b1-71d0-b583-7bf0c3c84cb9","finishedAt":"2026-11-19T02:31:59.419Z","responseMeta":{"status":200,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:59 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":0}}}','2026-11-19T02:31:59.419Z',NULL);
INSERT INTO "outbox" VALUES(2813,'t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','ServiceCallSucceeded','{"id":"01a1f1a5-86bd-755e-b92f-4532bbd0d2e2","type":"ServiceCallSucceeded","tenantId":"t1","aggregateId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","timestampMs":1795055519421,"correlationId":"01a1f1a5-869b-7010-8a19-50b2ca9733fe","causationId":"01a1f1a5-86b2-7056-939e-cb8719f175fc","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-869b-7010-8a19-50b4ad2c5b37","finishedAt":"2026-11-19T02:31:59.410Z","responseMeta":{"status":200,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:59 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":0}}}','2026-11-19T02:31:59.421Z',NULL);
INSERT INTO "outbox" VALUES(2837,'t1','01a1f1a5-86af-74cb-82ba-92d59b313f4f','ExecutionStarted','{"id":"01a1f1a5-86c1-7762-a837-6da476b346d4","type":"ExecutionStarted","tenantId":"t1","aggregateId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","timestampMs":1795055519425,"correlationId":"01a1f1a5-86af-74cb-82ba-92d31f7cafc2","causationId":"01a1f1a5-86b7-7550-82ee-0710d1ad4563","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86af-74cb-82ba-92d59b313f4f","executionId":"01a1f1a5-86b7-7550-82ee-0710d1ad4563","startedAt":"2026-11-19T02:31:59.425Z"}}','2026-11-19T02:31:59.425Z',NULL);
INSERT INTO "outbox" VALUES(2841,'t1','01a1f1a5-86b4-7493-995f-e29e8d7af8ad','ServiceCallRunning','{"id":"01a1f1a5-86c2-7166-ae13-6f523dfa54db","type":"ServiceCallRunning","tenantId":"t1","aggregateId":"01a1f1a5-86b4-7493-995f-e29e8d7af8ad","timestampMs":1795055519426,"correlationId":"01a1f1a5-86b4-7493-995f-e29c3c13218d","causationId":"01a1f1a5-86c2-7166-ae13-6f4d190264df","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86b4-7493-995f-e29e8d7af8ad","startedAt":"2026-11-19T02:31:59.426Z"}}','2026-11-19T02:31:59.426Z',NULL);
INSERT INTO "outbox" VALUES(2842,'t1','01a1f1a5-86b4-7493-995f-e29e8d7af8ad','StartExecution','{"id":"01a1f1a5-86c2-7166-ae13-6f513568aca9","type":"StartExecution","tenantId":"t1","aggregateId":"01a1f1a5-86b4-7493-995f-e29e8d7af8ad","timestampMs":1795055519426,"correlationId":"01a1f1a5-86b4-7493-995f-e29c3c13218d","causationId":"01a1f1a5-86c2-7166-ae13-6f4d190264df","payload":{"tenantId":"t1","serviceCallId":"01a1f1a5-86b4-7493-995f-e29e8d7af8ad","requestSpec":{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-0-71","headers":{"Authorization":"Bearer s3cret-of-burst-0-71"},"body":"body of burst-0-71"},"timeoutMs":30000}}','2026-11-19T02:31:59.426Z',NULL);
CREATE TABLE punctual_migrations (
    -- One row for each migration that this file has been through, written in its transaction.
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    -- SHA-256 of the migration's text, in hexadecimal.
    checksum TEXT NOT NULL,
    -- Which set of tables the file has; the same in every row.
    set_name TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    app_version TEXT NOT NULL
) STRICT;
INSERT INTO "punctual_migrations" VALUES(1,'0001_bootstrap_schema','168f53f222076a336398e90187f8d16dbbe8ecde0ba3cebaf34a13341be09909','shared','2026-11-19T02:31:55.771Z','0.1.0');
INSERT INTO "punctual_migrations" VALUES(3,'0003_timer_schedules_schema','17d596dadf8705b1bbaf21f2ffe3e7c0753500a112307aa1553d6f96387fe084','shared','2026-11-19T02:31:55.771Z','0.1.0');
INSERT INTO "punctual_migrations" VALUES(4,'0004_timer_engine','6599bdaea7d053bb4dcfbe42fcfdba2f28fda7fedd701ea5f152ff77f6baa9ef','shared','2026-11-19T02:31:55.771Z','0.1.0');
INSERT INTO "punctual_migrations" VALUES(5,'0005_bus_positions','12be413b0f0436b78c8b099c96d51943b782691df93bff124445a3b233cb447b','shared','2026-11-19T02:31:55.771Z','0.1.0');
INSERT INTO "punctual_migrations" VALUES(6,'0006_service_calls','52962727ab745d73cd78373c0a74f85d7025a3b21fff9f75c8246a41ac0ea401','shared','2026-11-19T02:31:55.771Z','0.1.0');
INSERT INTO "punctual_migrations" VALUES(7,'0007_tenant_ready','a2adab489f576302ed089b91aeaeafe0270a791bd42c18628bebcdee289af3ff','shared','2026-11-19T02:31:55.771Z','0.1.0');
INSERT INTO "punctual_migrations" VALUES(8,'0008_attempts_by_port','2b38c6acf61370c7bbba58dc2d1bed90f2922d3a8f71e2b408263e41691245b3','shared','2026-11-19T02:31:55.771Z','0.1.0');
INSERT INTO "punctual_migrations" VALUES(9,'0009_last_error','71a8ba9de57e20b2934c3e9e707d7e1e665180050f5fd446e5d3a1305ad58075','shared','2026-11-19T02:31:55.771Z','0.1.0');
INSERT INTO "punctual_migrations" VALUES(10,'0010_dispatch_and_check','3c276d1f17a05121f4a8035e85e9197ae12e75f0f5558c2b4e7aaa2354a88d4c','shared','2026-11-19T02:31:55.771Z','0.1.0');
CREATE TABLE service_call_tags (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    tag TEXT NOT NULL,
    -- The call's, which never changes: the calls of a tag are read in the order of the list.
    due_at TEXT NOT NULL,
    PRIMARY KEY (tenant_id, service_call_id, tag),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE
) STRICT;
INSERT INTO "service_call_tags" VALUES('t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','first','2026-11-19T02:31:55.890Z');
INSERT INTO "service_call_tags" VALUES('t0','01a1f1a5-790e-7182-a050-589ea2b69d70','far','2099-12-24T18:00:00.000Z');
CREATE TABLE "service_calls" (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    submitted_at TEXT NOT NULL,
    due_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    -- Complete until the call has finished; then redacted.
    request_spec TEXT NOT NULL,
    -- The answer of the target if it Succeeded, the error if it Failed.
    outcome_meta TEXT,
    correlation_id TEXT NOT NULL,
    -- The message that brought the call, and the cause of those about it.
    command_id TEXT NOT NULL,
    -- Grows with each change, so that a change is made to what was seen.
    version INTEGER NOT NULL,
    -- When a sweep checks whether the call is stuck; null once it has finished.
    next_check_at TEXT,
    -- The one attempt of a Running call, and the message that started it.
    execution_id TEXT,
    caused_by TEXT,
    timeout_ms INTEGER,
    attempt_began_at TEXT,
    -- When the command of the attempt was last dispatched, and how often.
    dispatched_at TEXT,
    dispatch_count INTEGER,
    PRIMARY KEY (tenant_id, service_call_id),
    CHECK (status IN ('Scheduled', 'Running', 'Succeeded', 'Failed'))
) STRICT;
INSERT INTO "service_calls" VALUES('t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','succeeded','Succeeded','2026-11-19T02:31:55.894Z','2026-11-19T02:31:55.890Z','2026-11-19T02:31:55.910Z','2026-11-19T02:31:55.963Z','{"method":"POST","url":"http://127.0.0.1:47999/ok/succeeded","headers":{"Authorization":"[redacted]"},"body":"body of succeeded"}','{"status":200,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:55 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":6}','01a1f1a5-78f6-7434-bbfb-d955c5159ddd','01a1f1a5-78f6-7434-bbfb-d956792459a4',4,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "service_calls" VALUES('t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','answered-500','Failed','2026-11-19T02:31:55.908Z','2026-11-19T02:31:55.907Z','2026-11-19T02:31:55.935Z','2026-11-19T02:31:55.988Z','{"method":"POST","url":"http://127.0.0.1:47999/status/500","headers":{"Authorization":"[redacted]"},"body":"body of answered-500"}','{"kind":"HttpStatus","message":"the target answered 500","details":{"status":500,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:55 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":1},"latencyMs":1}','01a1f1a5-7903-75da-a3aa-41a9da578014','01a1f1a5-7904-750d-a9a5-9d545fa47085',4,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "service_calls" VALUES('t0','01a1f1a5-790e-7182-a050-589ea2b69d70','of-2099','Scheduled','2026-11-19T02:31:55.918Z','2099-12-24T18:00:00.000Z',NULL,NULL,'{"method":"POST","url":"http://127.0.0.1:47999/ok/of-2099","headers":{"Authorization":"Bearer s3cret-of-of-2099"},"body":"body of of-2099"}',NULL,'01a1f1a5-790e-7182-a050-589c2dbfca32','01a1f1a5-790e-7182-a050-589d7f358290',1,'2099-12-24T18:01:00.000Z',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "service_calls" VALUES('t2','01a1f1a5-7d33-7439-8029-b5a22ab75acd','hang-0','Running','2026-11-19T02:31:56.979Z','2026-11-19T02:31:56.979Z','2026-11-19T02:31:57.010Z',NULL,'{"method":"POST","url":"http://127.0.0.1:47999/hang/0","headers":{"Authorization":"Bearer s3cret-of-hang-0"},"body":"body of hang-0"}',NULL,'01a1f1a5-7d33-7439-8029-b5a01d8fb0e6','01a1f1a5-7d33-7439-8029-b5a172b10ef8',3,'2026-11-19T02:32:57.054Z','01a1f1a5-7d52-777e-8428-8e11595cd781','01a1f1a5-7d4f-70c1-b8f7-4fcbae502837',30000,'2026-11-19T02:31:57.054Z','2026-11-19T02:31:57.010Z',1);
INSERT INTO "service_calls" VALUES('t2','01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c','hang-64','Running','2026-11-19T02:31:57.519Z','2026-11-19T02:31:57.518Z','2026-11-19T02:31:57.551Z',NULL,'{"method":"POST","url":"http://127.0.0.1:47999/hang/64","headers":{"Authorization":"Bearer s3cret-of-hang-64"},"body":"body of hang-64"}',NULL,'01a1f1a5-7f4f-7709-8dab-cf2b4e5b4bee','01a1f1a5-7f4f-7709-8dab-cf2c1c7242ec',2,'2026-11-19T02:32:57.551Z','01a1f1a5-7f6f-77a3-a52a-4f1f78cf8d40','01a1f1a5-7f6f-77a3-a52a-4f1cc88738d5',30000,NULL,'2026-11-19T02:31:57.551Z',1);
INSERT INTO "service_calls" VALUES('t1','01a1f1a5-801a-70c7-b679-be36b5372ef0','soon-0','Scheduled','2026-11-19T02:31:57.722Z','2026-11-19T02:32:00.721Z',NULL,NULL,'{"method":"POST","url":"http://127.0.0.1:47999/ok/soon-0","headers":{"Authorization":"Bearer s3cret-of-soon-0"},"body":"body of soon-0"}',NULL,'01a1f1a5-801a-70c7-b679-be30c0dde27a','01a1f1a5-801a-70c7-b679-be354608d374',1,'2026-11-19T02:33:00.721Z',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "service_calls" VALUES('t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','burst-2-63','Succeeded','2026-11-19T02:31:59.387Z','2026-11-19T02:31:59.386Z','2026-11-19T02:31:59.399Z','2026-11-19T02:31:59.410Z','{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-2-63","headers":{"Authorization":"[redacted]"},"body":"body of burst-2-63"}','{"status":200,"headers":{"content-length":"2","date":"Thu, 19 Nov 2026 02:31:59 GMT","server":"BaseHTTP/0.6 Python/3.11.7"},"bodySnippet":"ok","latencyMs":0}','01a1f1a5-869b-7010-8a19-50b2ca9733fe','01a1f1a5-869b-7010-8a19-50b3cb7bbb08',4,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "service_calls" VALUES('t1','01a1f1a5-86a4-7714-b339-0cf5d817c938','burst-5-65','Running','2026-11-19T02:31:59.396Z','2026-11-19T02:31:59.395Z','2026-11-19T02:31:59.409Z',NULL,'{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-5-65","headers":{"Authorization":"Bearer s3cret-of-burst-5-65"},"body":"body of burst-5-65"}',NULL,'01a1f1a5-86a4-7714-b339-0cf3e9354ac7','01a1f1a5-86a4-7714-b339-0cf4eef90e8d',3,'2026-11-19T02:32:59.415Z','01a1f1a5-86b1-71d0-b583-7bf0c3c84cb9','01a1f1a5-86b0-7702-9eea-16e6862250b2',30000,'2026-11-19T02:31:59.415Z','2026-11-19T02:31:59.409Z',1);
INSERT INTO "service_calls" VALUES('t1','01a1f1a5-86af-74cb-82ba-92d59b313f4f','burst-2-67','Running','2026-11-19T02:31:59.407Z','2026-11-19T02:31:59.406Z','2026-11-19T02:31:59.415Z',NULL,'{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-2-67","headers":{"Authorization":"Bearer s3cret-of-burst-2-67"},"body":"body of burst-2-67"}',NULL,'01a1f1a5-86af-74cb-82ba-92d31f7cafc2','01a1f1a5-86af-74cb-82ba-92d4d9bc74c2',2,'2026-11-19T02:32:59.415Z','01a1f1a5-86b7-7550-82ee-0710d1ad4563','01a1f1a5-86b7-7550-82ee-070cf3c0d282',30000,NULL,'2026-11-19T02:31:59.415Z',1);
INSERT INTO "service_calls" VALUES('t1','01a1f1a5-86b4-7493-995f-e29e8d7af8ad','burst-0-71','Running','2026-11-19T02:31:59.412Z','2026-11-19T02:31:59.411Z','2026-11-19T02:31:59.426Z',NULL,'{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-0-71","headers":{"Authorization":"Bearer s3cret-of-burst-0-71"},"body":"body of burst-0-71"}',NULL,'01a1f1a5-86b4-7493-995f-e29c3c13218d','01a1f1a5-86b4-7493-995f-e29dca323927',2,'2026-11-19T02:32:59.426Z','01a1f1a5-86c2-7166-ae13-6f513568aca9','01a1f1a5-86c2-7166-ae13-6f4d190264df',30000,NULL,'2026-11-19T02:31:59.426Z',1);
INSERT INTO "service_calls" VALUES('t1','01a1f1a5-86b9-74c7-a5ac-f14879396481','burst-3-73','Scheduled','2026-11-19T02:31:59.417Z','2026-11-19T02:31:59.417Z',NULL,NULL,'{"method":"POST","url":"http://127.0.0.1:47999/ok/burst-3-73","headers":{"Authorization":"Bearer s3cret-of-burst-3-73"},"body":"body of burst-3-73"}',NULL,'01a1f1a5-86b9-74c7-a5ac-f1462508f757','01a1f1a5-86b9-74c7-a5ac-f147411808c1',1,'2026-11-19T02:32:59.417Z',NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE submissions (
    -- What was submitted, by the id and by the key that it has taken. It outlives its call: a
    -- repetition is recognised, and something else refused, until retention forgets it.
    tenant_id TEXT NOT NULL,
    -- Null if none was given.
    idempotency_key TEXT,
    service_call_id TEXT NOT NULL,
    -- Tells a repetition from another submission under the same id or key.
    body_sha256 BLOB NOT NULL,
    correlation_id TEXT NOT NULL,
    submitted_at TEXT NOT NULL,
    -- Since when the call is gone; null while it is there.
    gone_at TEXT,
    PRIMARY KEY (tenant_id, service_call_id)
) STRICT;
INSERT INTO "submissions" VALUES('t0','succeeded','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9',X'1BB23B7A91E597638F5E3069973E5A47E3BBF850CE3C203AE650BFF55B879853','01a1f1a5-78f6-7434-bbfb-d955c5159ddd','2026-11-19T02:31:55.894Z',NULL);
INSERT INTO "submissions" VALUES('t0','answered-500','01a1f1a5-7904-750d-a9a5-9d551a4b132d',X'41C44A91B64521738FA53B3E2B57A6C683D32D82FB0A1A1609E35FAD37EB710D','01a1f1a5-7903-75da-a3aa-41a9da578014','2026-11-19T02:31:55.908Z',NULL);
INSERT INTO "submissions" VALUES('t0','of-2099','01a1f1a5-790e-7182-a050-589ea2b69d70',X'FC13FC580ACB864B62B0FC713FB9BA06658F8FA87B05E4638E231FDD88EE59CF','01a1f1a5-790e-7182-a050-589c2dbfca32','2026-11-19T02:31:55.918Z',NULL);
INSERT INTO "submissions" VALUES('t1','deleted','01a1f1a5-7931-776a-b438-425be3bcd37a',X'1FE7FDD13B1A79BBA2714D0656D96B5610AF7A4F797F6F62C3EEB8AF2BE10AAC','01a1f1a5-7931-776a-b438-42594f5ceddd','2026-11-19T02:31:55.953Z','2026-11-19T02:31:56.976Z');
INSERT INTO "submissions" VALUES('t2','hang-0','01a1f1a5-7d33-7439-8029-b5a22ab75acd',X'AA25F952E749B5D544C332A922316569588820A8228F87ED5685E018D613F39F','01a1f1a5-7d33-7439-8029-b5a01d8fb0e6','2026-11-19T02:31:56.979Z',NULL);
INSERT INTO "submissions" VALUES('t2','hang-64','01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c',X'0B64C852999717C828EFD7B6CB8A8D5BF694419081C7A587E6BC58A47785720F','01a1f1a5-7f4f-7709-8dab-cf2b4e5b4bee','2026-11-19T02:31:57.519Z',NULL);
INSERT INTO "submissions" VALUES('t1','soon-0','01a1f1a5-801a-70c7-b679-be36b5372ef0',X'3DCC74AFB90C6F28C0880386CF65EBD8A6C61BBB77DF178256524454CA55FFAD','01a1f1a5-801a-70c7-b679-be30c0dde27a','2026-11-19T02:31:57.722Z',NULL);
INSERT INTO "submissions" VALUES('t1','burst-2-63','01a1f1a5-869b-7010-8a19-50b4ad2c5b37',X'200C4DDDFEE2732BD1803C843708D6D108B9072EC62F419A1EE97D65833EDB5B','01a1f1a5-869b-7010-8a19-50b2ca9733fe','2026-11-19T02:31:59.387Z',NULL);
INSERT INTO "submissions" VALUES('t1','burst-5-65','01a1f1a5-86a4-7714-b339-0cf5d817c938',X'BC9AE94DE9B8EF1CDC2F39462C27C1C775815DB9928C5752F0E876D1630167E9','01a1f1a5-86a4-7714-b339-0cf3e9354ac7','2026-11-19T02:31:59.396Z',NULL);
INSERT INTO "submissions" VALUES('t1','burst-2-67','01a1f1a5-86af-74cb-82ba-92d59b313f4f',X'A84D8047F670672068E2901242E78515F48DC546C012347CFBF50FB936033DF9','01a1f1a5-86af-74cb-82ba-92d31f7cafc2','2026-11-19T02:31:59.407Z',NULL);
INSERT INTO "submissions" VALUES('t1','burst-0-71','01a1f1a5-86b4-7493-995f-e29e8d7af8ad',X'CE4B704E11984FD26EA5CEE1703E8DD279EE51AA5178C0FE79E3006B43ECF537','01a1f1a5-86b4-7493-995f-e29c3c13218d','2026-11-19T02:31:59.412Z',NULL);
INSERT INTO "submissions" VALUES('t1','burst-3-73','01a1f1a5-86b9-74c7-a5ac-f14879396481',X'A0677A93478223D81E0268A0BFB085694636BD2AABA4D04764F1E85D492DFF0C','01a1f1a5-86b9-74c7-a5ac-f1462508f757','2026-11-19T02:31:59.417Z',NULL);
CREATE TABLE "timer_schedules" (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    due_at TEXT NOT NULL,
    registered_at TEXT NOT NULL,
    reached_at TEXT,
    state TEXT NOT NULL DEFAULT 'Scheduled', data TEXT, attempts INTEGER NOT NULL DEFAULT 0, retry_at TEXT, last_error TEXT,
    PRIMARY KEY (tenant_id, service_call_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls(tenant_id, service_call_id)
        ON DELETE CASCADE,
    CHECK (state IN ('Scheduled', 'Reached'))
) STRICT;
INSERT INTO "timer_schedules" VALUES('t0','01a1f1a5-78f6-7434-bbfb-d957a57ee4c9','01a1f1a5-78f6-7434-bbfb-d955c5159ddd','2026-11-19T02:31:55.890Z','2026-11-19T02:31:55.894Z','2026-11-19T02:31:55.910Z','Reached',NULL,0,NULL,NULL);
INSERT INTO "timer_schedules" VALUES('t0','01a1f1a5-7904-750d-a9a5-9d551a4b132d','01a1f1a5-7903-75da-a3aa-41a9da578014','2026-11-19T02:31:55.907Z','2026-11-19T02:31:55.908Z','2026-11-19T02:31:55.935Z','Reached',NULL,0,NULL,NULL);
INSERT INTO "timer_schedules" VALUES('t0','01a1f1a5-790e-7182-a050-589ea2b69d70','01a1f1a5-790e-7182-a050-589c2dbfca32','2099-12-24T18:00:00.000Z','2026-11-19T02:31:55.918Z',NULL,'Scheduled',NULL,0,NULL,NULL);
INSERT INTO "timer_schedules" VALUES('t2','01a1f1a5-7d33-7439-8029-b5a22ab75acd','01a1f1a5-7d33-7439-8029-b5a01d8fb0e6','2026-11-19T02:31:56.979Z','2026-11-19T02:31:56.979Z','2026-11-19T02:31:57.007Z','Reached',NULL,0,NULL,NULL);
INSERT INTO "timer_schedules" VALUES('t2','01a1f1a5-7f4f-7709-8dab-cf2d6d508d8c','01a1f1a5-7f4f-7709-8dab-cf2b4e5b4bee','2026-11-19T02:31:57.518Z','2026-11-19T02:31:57.519Z','2026-11-19T02:31:57.551Z','Reached',NULL,0,NULL,NULL);
INSERT INTO "timer_schedules" VALUES('t1','01a1f1a5-801a-70c7-b679-be36b5372ef0','01a1f1a5-801a-70c7-b679-be30c0dde27a','2026-11-19T02:32:00.721Z','2026-11-19T02:31:57.722Z',NULL,'Scheduled',NULL,0,NULL,NULL);
INSERT INTO "timer_schedules" VALUES('t1','01a1f1a5-869b-7010-8a19-50b4ad2c5b37','01a1f1a5-869b-7010-8a19-50b2ca9733fe','2026-11-19T02:31:59.386Z','2026-11-19T02:31:59.387Z','2026-11-19T02:31:59.399Z','Reached',NULL,0,NULL,NULL);
INSERT INTO "timer_schedules" VALUES('t1','01a1f1a5-86a4-7714-b339-0cf5d817c938','01a1f1a5-86a4-7714-b339-0cf3e9354ac7','2026-11-19T02:31:59.395Z','2026-11-19T02:31:59.396Z','2026-11-19T02:31:59.408Z','Reached',NULL,0,NULL,NULL);
INSERT INTO "timer_schedules" VALUES('t1','01a1f1a5-86af-74cb-82ba-92d59b313f4f','01a1f1a5-86af-74cb-82ba-92d31f7cafc2','2026-11-19T02:31:59.406Z','2026-11-19T02:31:59.407Z','2026-11-19T02:31:59.415Z','Reached',NULL,0,NULL,NULL);
INSERT INTO "timer_schedules" VALUES('t1','01a1f1a5-86b4-7493-995f-e29e8d7af8ad','01a1f1a5-86b4-7493-995f-e29c3c13218d','2026-11-19T02:31:59.411Z','2026-11-19T02:31:59.412Z',NULL,'Scheduled',NULL,0,NULL,NULL);
CREATE TABLE tombstones (
    -- A deleted timer: commands that are not newer than deleted_at do not bring it back.
    -- No foreign key: the service call is gone as well.
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    deleted_at TEXT NOT NULL,
    PRIMARY KEY (tenant_id, service_call_id)
) STRICT;
INSERT INTO "tombstones" VALUES('t1','01a1f1a5-7931-776a-b438-425be3bcd37a','2026-11-19T02:31:56.976Z');
CREATE INDEX idx_outbox_unpublished
-- The dispatcher's: what is still to be published, oldest first. Published rows are not in it, so
-- it stays as small as the backlog.
ON outbox(published_at, created_at)
WHERE published_at IS NULL;
CREATE INDEX idx_timer_schedules_due_at
-- A tenant's own timers in the order in which they come due.
ON timer_schedules(tenant_id, state, due_at);
CREATE INDEX idx_timer_schedules_correlation_id
-- The trace of one request, across tenants.
ON timer_schedules(correlation_id);
CREATE INDEX idx_timer_schedules_ready
-- The worker's: what is due next, whatever its tenant. One poll costs the same for one tenant and
-- for ten thousand. Fired timers are not in it, so it stays as small as the work ahead.
ON timer_schedules(coalesce(retry_at, due_at))
WHERE state = 'Scheduled';
CREATE INDEX idx_timer_schedules_reached_at
-- Retention's: the timers that fired longest ago. Without it every batch would scan the table.
ON timer_schedules(reached_at)
WHERE state = 'Reached';
CREATE INDEX idx_tombstones_deleted_at
-- Retention's: the oldest tombstones.
ON tombstones(deleted_at);
CREATE INDEX idx_service_call_tags_tag
-- Whether a call has a tag, and how many have it, from the tag's side.
ON service_call_tags(tenant_id, tag, service_call_id);
CREATE INDEX idx_service_call_tags_due_at
-- The calls of one tag, the latest due first, so that a page of a million reads a page.
ON service_call_tags(tenant_id, tag, due_at, service_call_id);
CREATE UNIQUE INDEX idx_submissions_idempotency_key
-- A key is taken once in a tenant.
ON submissions(tenant_id, idempotency_key)
WHERE idempotency_key IS NOT NULL;
CREATE INDEX idx_submissions_gone_at
-- Retention's: the submissions whose call is gone longest.
ON submissions(gone_at)
WHERE gone_at IS NOT NULL;
CREATE INDEX idx_http_execution_log_waiting
-- Whose turn it is: the next tenant, its next host, and the oldest of those. However many wait for
-- one host, the next one is a step away. What has begun is not in it.
ON http_execution_log(tenant_id, host, started_at)
WHERE state = 'Waiting';
CREATE INDEX idx_http_execution_log_open
-- The attempts that began and have not ended, the oldest first.
ON http_execution_log(started_at)
WHERE state = 'Attempted';
CREATE INDEX idx_outbox_aggregate_id
-- The messages about one call, in the order of their places.
ON outbox(tenant_id, aggregate_id);
CREATE INDEX idx_outbox_published_at
-- Retention's: the messages that were published longest ago.
ON outbox(published_at)
WHERE published_at IS NOT NULL;
CREATE INDEX idx_timer_schedules_tenant_ready
-- The worker's, tenant by tenant: what each has due next.
ON timer_schedules(tenant_id, coalesce(retry_at, due_at))
WHERE state = 'Scheduled';
CREATE INDEX idx_service_calls_due_at
-- A tenant's calls, read backwards: the latest due first.
ON service_calls(tenant_id, due_at, service_call_id);
CREATE INDEX idx_service_calls_status
-- The same for one status: without it, the few that failed would be searched among all.
ON service_calls(tenant_id, status, due_at, service_call_id);
CREATE INDEX idx_service_calls_correlation_id
-- The trace of one request, across tenants.
ON service_calls(correlation_id);
CREATE INDEX idx_service_calls_next_check_at
-- The sweep's: what to check next, whatever its tenant. Finished calls are not in it, so it stays as
-- small as the work ahead.
ON service_calls(next_check_at)
WHERE next_check_at IS NOT NULL;
CREATE INDEX idx_service_calls_finished_at
-- Retention's: the calls that finished longest ago.
ON service_calls(finished_at)
WHERE finished_at IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('outbox',2848);
COMMIT;
